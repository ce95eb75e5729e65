//! `/pins`: approved definitions of tools, changes since, and their approval. The command line prints the same type,
//! also without a gateway.

use crate::api::Admin;
use crate::api::auth;
use crate::api::response::{ApiError, json};
use crate::api::types::{ApprovedView, PinsView};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use std::sync::Arc;

pub(crate) async fn all(State(admin): State<Arc<Admin>>) -> Result<Response, ApiError> {
    admin.host.wait_for_secrets().await;
    Ok(json(StatusCode::OK, &PinsView::of(&admin.host, None)?))
}

pub(crate) async fn of_server(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(crate::api::router::invalid_path)?;
    admin.host.wait_for_secrets().await;
    Ok(json(StatusCode::OK, &PinsView::of(&admin.host, Some(&name))?))
}

pub(crate) async fn approve_all(
    State(admin): State<Arc<Admin>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    auth::require_token(&headers, &admin.token)?;
    let Path(name) = name.map_err(crate::api::router::invalid_path)?;
    approve(&admin, name, None).await
}

pub(crate) async fn approve_one(
    State(admin): State<Arc<Admin>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    auth::require_token(&headers, &admin.token)?;
    let Path((name, tool)) = path.map_err(crate::api::router::invalid_path)?;
    approve(&admin, name, Some(&tool)).await
}

async fn approve(admin: &Admin, server: String, tool: Option<&str>) -> Result<Response, ApiError> {
    let approved = admin.host.approve_shared(&server, tool).await?;
    Ok(json(StatusCode::OK, &ApprovedView { server, approved }))
}
