//! Tasks of clients, and cursors of lists, through any replica.

use super::service::Service;
use crate::client::{LegacyClient, ModernClient, call, names};
use crate::test_gateway::{at, child, demo_with};
use gripfast_demo::{EraChoice, Options};
use gripfast_testkit::wait::until_async;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A server on stdio whose tool `job` is a task.
fn jobs(name: &str, era: &str) -> String {
    child(name, &["--showcase", "--era", era], &[&format!("protocol = {era:?}")])
}

async fn about(service: &Service, replica: &str, method: &str, params: Value) -> Value {
    let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    ModernClient::new(&service.at(replica).http).request_as(capabilities, method, params).await
}

async fn begin(service: &Service, replica: &str, tool: &str, arguments: Value) -> String {
    let begun = about(service, replica, "tools/call", call(tool, arguments)).await;
    assert_eq!(begun["result"]["resultType"], "task", "{begun}");
    begun["result"]["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_task_begun_on_one_replica_is_read_answered_and_cancelled_on_others() {
    let Some(service) = Service::start_with(&["a", "b", "c"], &jobs("jobs", "modern")) else { return };
    service.until_complete().await;
    let id = begin(&service, "a", "jobs__job", json!({ "question": "Sure?" })).await;
    assert!(id.starts_with("a."), "the id names its replica: {id}");
    let looked = about(&service, "b", "tasks/get", json!({ "taskId": id })).await;
    assert_eq!(looked["result"]["inputRequests"]["q"]["params"]["message"], "Sure?", "{looked}");
    assert_eq!(looked["result"]["taskId"], id, "the id of the client");
    let update = json!({ "taskId": id, "inputResponses": { "q": { "action": "accept" } } });
    let updated = about(&service, "c", "tasks/update", update).await;
    assert_eq!(updated["result"]["resultType"], "complete", "{updated}");
    let looked = about(&service, "b", "tasks/get", json!({ "taskId": id })).await;
    assert_eq!(looked["result"]["result"]["content"][0]["text"], "done: accept", "{looked}");

    // The same number at the server of another replica is another task.
    let second = begin(&service, "b", "jobs__job", json!({})).await;
    assert_ne!(id, second);
    about(&service, "c", "tasks/cancel", json!({ "taskId": second })).await;
    for replica in ["a", "b"] {
        let looked = about(&service, replica, "tasks/get", json!({ "taskId": second })).await;
        assert_eq!(looked["result"]["status"], "cancelled", "{looked}");
    }
    for unknown in ["job-1", &id.replace("a.", "b.")] {
        let unknown = about(&service, "c", "tasks/get", json!({ "taskId": unknown })).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    }
}

#[tokio::test]
async fn a_task_outlives_its_replica_if_its_server_does() {
    let demo = demo_with(Options { era: EraChoice::Modern, showcase: true, ..Options::default() }).await;
    let config = at("remote", &demo.url(), "modern", &[]) + &jobs("jobs", "modern");
    let Some(mut service) = Service::start_with(&["a", "b"], &config) else { return };
    service.until_complete().await;
    let remote = begin(&service, "a", "remote__job", json!({ "question": "Sure?" })).await;
    let local = begin(&service, "a", "jobs__job", json!({})).await;
    service.kill("a");
    until_async("the other replica asks the server", async || {
        let looked = about(&service, "b", "tasks/get", json!({ "taskId": remote })).await;
        looked["result"]["inputRequests"]["q"]["params"]["message"] == "Sure?"
            && looked["result"]["taskId"] == json!(remote)
    })
    .await;
    let ended = about(&service, "b", "tasks/get", json!({ "taskId": local })).await;
    assert_eq!(ended["error"]["code"], -32602, "{ended}");
    let text = ended["error"]["message"].as_str().unwrap();
    assert!(text.contains("replica `a`") && text.contains("server `jobs`"), "{text}");
}

#[tokio::test]
async fn the_tasks_of_a_legacy_session_are_listed_and_read_through_other_replicas() {
    let Some(service) = Service::start_with(&["a", "b", "c"], &jobs("jobs", "legacy")) else { return };
    service.until_complete().await;
    let client = LegacyClient::connect(&service.at("a").http).await;
    let [b, c] = ["b", "c"].map(|name| super::through(&client, &service.at(name).http));
    let mut job = call("jobs__job", json!({ "text": "built" }));
    job["task"] = json!({ "ttl": 60_000 });
    let begun = b.request("tools/call", job).await;
    let id = begun["result"]["task"]["taskId"].as_str().unwrap();
    let listed = c.request("tasks/list", json!({})).await;
    assert_eq!(listed["result"]["tasks"][0]["taskId"], id, "{listed}");
    b.call_tool("jobs__finish", json!({ "id": id })).await;
    let result = c.request("tasks/result", json!({ "taskId": id })).await;
    assert_eq!(result["result"]["content"][0]["text"], "built", "{result}");
    let other = LegacyClient::connect(&service.at("c").http).await;
    let unknown = other.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(unknown["error"]["code"], -32602, "another session's task: {unknown}");
}

#[tokio::test]
async fn a_list_of_more_than_1000_tools_is_paged_through_replicas_in_turn() {
    let many = format!(
        "[gateway]\nexposure = 'all'\nstartup_wait = '60s'\n{}",
        child("many", &["--tools", "1100"], &[])
    );
    let Some(service) = Service::start_with(&["a", "b", "c"], &many) else { return };
    service.until_complete().await;
    let (mut all, mut pages, mut cursor) = (Vec::new(), 0, None);
    for replica in ["a", "b", "c"].into_iter().cycle() {
        let params = cursor.map_or(json!({}), |cursor: Value| json!({ "cursor": cursor }));
        let page = ModernClient::new(&service.at(replica).http).request("tools/list", params).await;
        let found = names(&page, "tools", "name");
        assert!(!found.is_empty(), "{page}");
        all.extend(found);
        pages += 1;
        match page["result"].get("nextCursor") {
            Some(next) => cursor = Some(next.clone()),
            None => break,
        }
    }
    assert_eq!(pages, 2, "from two replicas");
    let unique: BTreeSet<&String> = all.iter().collect();
    assert_eq!(unique.len(), all.len(), "none is there twice");
    let extra = all.iter().filter(|name| name.starts_with("many__extra_")).count();
    assert_eq!(extra, 1100, "none is missing");
}
