//! Stubs for a build without the feature `redis`: nothing connects.

use crate::StoreError;
use crate::store_url::StoreUrl;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Connection(Infallible);
pub(crate) struct LiveConnection<'a>(Infallible, PhantomData<&'a ()>);
pub(crate) struct Messages(Infallible);
pub(crate) struct Script;
#[derive(Debug)]
pub(crate) struct Command;

pub(crate) fn cmd(_name: &str) -> Command {
    Command
}

impl Script {
    pub(crate) fn new(_source: &str) -> Self {
        Self
    }

    pub(crate) fn prepare_invoke(&self) -> Command {
        Command
    }
}

impl Command {
    pub(crate) fn arg<T>(&mut self, _argument: T) -> &mut Self {
        self
    }
}

impl Connection {
    pub(crate) fn new(_url: &StoreUrl, _timeout: Duration) -> Result<Self, StoreError> {
        Err(StoreError::Refused("this build has no support for replicas".to_owned()))
    }

    pub(crate) async fn run<T>(&self, _script: &Command) -> Result<T, StoreError> {
        match self.0 {}
    }

    pub(crate) async fn load(&self, _script: &Script) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub(crate) async fn query<T>(&self, _command: &Command) -> Result<T, StoreError> {
        match self.0 {}
    }

    pub(crate) async fn subscribe(&self, _channel: &str) -> Result<Messages, StoreError> {
        match self.0 {}
    }

    pub(crate) fn close(&self) {
        match self.0 {}
    }

    pub(crate) async fn live(&self) -> Result<LiveConnection<'_>, StoreError> {
        match self.0 {}
    }
}

impl LiveConnection<'_> {
    pub(crate) async fn run<T>(&mut self, _script: &Command) -> Result<T, StoreError> {
        match self.0 {}
    }

    pub(crate) async fn query<T>(&mut self, _command: &Command) -> Result<T, StoreError> {
        match self.0 {}
    }
}

impl Messages {
    pub(crate) async fn next(&mut self) -> Option<String> {
        match self.0 {}
    }
}
