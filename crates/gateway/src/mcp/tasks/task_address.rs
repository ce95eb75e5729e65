//! Ids of tasks in a service of several replicas. Such an id names the process that began the task, its principal and
//! its server, so that any replica can take a request about the task to where it is known.

use super::registry::TaskLocation;
use crate::mcp::address::{AddressKind, Replica};
use crate::mcp::session::token::TokenCipher;
use gripfast::Principal;
use serde::{Deserialize, Serialize};

/// Content of the id of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskAddress {
    /// Process that began the task.
    pub(crate) replica: Replica,
    principal: String,
    server: String,
    /// Whether the shared instance of the server has it.
    shared: bool,
    id: String,
}

#[derive(Serialize, Deserialize)]
struct Fields {
    principal: String,
    server: String,
    shared: bool,
    id: String,
}

/// Result of looking for a task that another process began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForeignTask {
    /// Its server is not part of that process, so this one can ask it.
    At(TaskLocation),
    /// Its server ended with that process.
    Ended {
        /// The server.
        server: String,
        /// The name of the replica.
        replica: String,
    },
    /// It belongs to another principal, or to this process, which does not know it.
    Unknown,
}

impl TaskAddress {
    /// Issues the id of a task of this process.
    pub(crate) fn issue(
        tokens: &TokenCipher,
        principal: &Principal,
        location: &TaskLocation,
    ) -> Option<String> {
        let fields = Fields {
            principal: principal.name().to_owned(),
            server: location.server.clone(),
            shared: location.dedicated_to.is_none(),
            id: location.id.clone(),
        };
        tokens.seal(AddressKind::Task, 0, &serde_json::to_vec(&fields).ok()?)
    }

    /// Opens an id; `None` if no replica of the service issued it.
    pub(crate) fn open(tokens: &TokenCipher, id: &str) -> Option<Self> {
        let (address, content) = tokens.open(AddressKind::Task, id)?;
        let Fields { principal, server, shared, id } = serde_json::from_slice(&content).ok()?;
        Some(Self { replica: address.replica, principal, server, shared, id })
    }

    /// Decides what the process `own` can do for `principal` about a task that it does not have. `is_remote` says
    /// whether a server runs outside the gateways.
    pub(crate) fn resolve_at(
        self,
        own: &Replica,
        principal: &Principal,
        is_remote: impl FnOnce(&str) -> bool,
    ) -> ForeignTask {
        if self.principal != principal.name() || self.replica == *own {
            return ForeignTask::Unknown;
        }
        if self.shared && is_remote(&self.server) {
            return ForeignTask::At(TaskLocation { server: self.server, dedicated_to: None, id: self.id });
        }
        let replica = self.replica.name.map(|name| name.as_str().to_owned()).unwrap_or_default();
        ForeignTask::Ended { server: self.server, replica }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast::{ClientKey, ReplicaName};

    fn replica(name: &str) -> TokenCipher {
        let cipher = TokenCipher::ephemeral().unwrap().with_shared_keys(&[[7; 32]]).unwrap();
        cipher.with_name(ReplicaName::new(name).unwrap())
    }

    fn location(dedicated_to: Option<ClientKey>) -> TaskLocation {
        TaskLocation { server: "jobs".to_owned(), dedicated_to, id: "job-1".to_owned() }
    }

    #[test]
    fn a_task_id_opens_at_every_replica_and_names_the_first() {
        let (a, b) = (replica("a"), replica("b"));
        let id = TaskAddress::issue(&a, &Principal::new("ann"), &location(None)).unwrap();
        assert!(!id.contains("ann") && !id.contains("job"), "{id}");
        assert_eq!(TaskAddress::open(&b, &id).unwrap().replica, *a.own());
        assert_eq!(TaskAddress::open(&b, "job-1"), None, "an id of a server");
        let other_service = TokenCipher::ephemeral().unwrap();
        assert_eq!(TaskAddress::open(&other_service, &id), None);
    }

    #[test]
    fn a_task_of_another_replica_is_found_by_its_principal_if_its_server_is_still_there() {
        let (a, b, ann) = (replica("a"), replica("b"), Principal::new("ann"));
        let find = |location: &TaskLocation, by: &Principal, at: &TokenCipher, is_remote: bool| {
            let id = TaskAddress::issue(&a, &ann, location).unwrap();
            TaskAddress::open(at, &id).unwrap().resolve_at(at.own(), by, |_| is_remote)
        };
        let ended = ForeignTask::Ended { server: "jobs".to_owned(), replica: "a".to_owned() };
        assert_eq!(find(&location(None), &ann, &b, true), ForeignTask::At(location(None)));
        assert_eq!(find(&location(None), &ann, &b, false), ended, "the server was a child of the replica");
        assert_eq!(find(&location(Some(ClientKey::new("c"))), &ann, &b, true), ended, "so was its instance");
        assert_eq!(find(&location(None), &Principal::new("ben"), &b, true), ForeignTask::Unknown);
        assert_eq!(find(&location(None), &ann, &a, true), ForeignTask::Unknown, "the registry has those");
    }
}
