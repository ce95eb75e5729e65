//! Exclusive leases in the store: claim and release. The heartbeat renews them.

use crate::StoreError;
use crate::connection::{LiveConnection, Script, cmd};
use crate::moved::read_owner;
use crate::store::{Store, StoreInfo, millis};
use crate::tables::SharedTable;
use gripfast_core::placement::exclusive::ClaimReply;
use gripfast_core::placement::place::{OwnerEpoch, SessionOwner};
use std::sync::LazyLock;
use std::time::Duration;

static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/claim.lua")))
});
static RELEASE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/release.lua")))
});

static CONFIRM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/confirm_claim.lua")))
});

/// Time for a replica of the store to confirm a claim.
const REPLICATION_TIMEOUT: Duration = Duration::from_millis(500);

impl Store {
    /// Claims an exclusive lease that the heartbeat renews.
    ///
    /// # Errors
    ///
    /// If the store is unreachable, or none of its replicas confirmed the claim.
    pub async fn claim(&self, name: &str, above: OwnerEpoch) -> Result<ClaimReply, StoreError> {
        self.claim_for(name, above, self.settings.spec.lease).await
    }

    /// Claims an exclusive lease with a lifetime of its own, such as the right to refresh a login. The holder counts
    /// its term from before this call.
    ///
    /// # Errors
    ///
    /// As [`Self::claim`].
    pub async fn claim_for(
        &self,
        name: &str,
        above: OwnerEpoch,
        lifetime: Duration,
    ) -> Result<ClaimReply, StoreError> {
        let spec = self.settings.spec;
        let mut script = CLAIM.prepare_invoke();
        script.arg(self.prefix()).arg(self.place()).arg(name).arg(above.number());
        script.arg(millis(lifetime)).arg(millis(spec.lease)).arg(millis(spec.grace()));
        // One connection for the claim and its confirmation: `WAIT` is about the writes of its own connection. If that one is
        // lost in between, the claim is not confirmed.
        let mut connection = self.connection.live().await?;
        let (result, number): (String, u64) = connection.run(&script).await?;
        let left = Duration::from_millis(number);
        match result.as_str() {
            "claimed" => {
                let epoch = OwnerEpoch::from_number(number);
                self.await_replication(connection, name, epoch).await?;
                Ok(ClaimReply::Claimed { epoch })
            }
            "taken" => Ok(ClaimReply::Taken { left }),
            "grace" => Ok(ClaimReply::Grace { left }),
            _ => Err(StoreError::Malformed("claim".to_owned())),
        }
    }

    /// Returns whether this replica still holds a lease, and a field of a table still has the version that it was read
    /// with.
    ///
    /// # Errors
    ///
    /// If the store is unreachable.
    pub async fn confirm_claim(
        &self,
        name: &str,
        epoch: OwnerEpoch,
        (table, field, version): (SharedTable, &str, u64),
    ) -> Result<bool, StoreError> {
        let mut script = CONFIRM.prepare_invoke();
        script.arg(self.prefix()).arg(self.place()).arg(name).arg(epoch.number());
        script.arg(table.as_str()).arg(field).arg(version);
        Ok(self.connection.run::<u8>(&script).await? == 1)
    }

    /// The holder of an exclusive lease, if there is one. Anyone with access to the store can forge it: the replica that
    /// it names must be known otherwise.
    ///
    /// # Errors
    ///
    /// If the store is unreachable or the record cannot be read.
    pub async fn lease_holder(&self, name: &str) -> Result<Option<SessionOwner>, StoreError> {
        let key = self.settings.namespace.key(&format!("lease:{name}"));
        let stored: Option<String> = self.connection.query(cmd("GET").arg(&key)).await?;
        stored.map(|stored| read_owner(&key, &stored)).transpose()
    }

    /// Waits until a replica of the store has the claim, if it has replicas. A claim that a failover could lose is
    /// given back.
    async fn await_replication(
        &self,
        mut connection: LiveConnection<'_>,
        name: &str,
        epoch: OwnerEpoch,
    ) -> Result<(), StoreError> {
        let mut wait = cmd("WAIT");
        wait.arg(1).arg(millis(REPLICATION_TIMEOUT));
        let info: String = connection.query(&cmd("INFO")).await?;
        if StoreInfo::read(&info).replicas == 0 {
            return Ok(());
        }
        let confirmed: u32 = connection.query(&wait).await?;
        if confirmed > 0 {
            return Ok(());
        }
        self.release(name, epoch).await?;
        Err(StoreError::NotReplicated)
    }

    /// Releases an exclusive lease. Another replica's lease stays.
    ///
    /// # Errors
    ///
    /// If the store is unreachable; the lease then ends by time.
    pub async fn release(&self, name: &str, epoch: OwnerEpoch) -> Result<(), StoreError> {
        let mut script = RELEASE.prepare_invoke();
        script.arg(self.prefix()).arg(self.place()).arg(name).arg(epoch.number());
        self.connection.run(&script).await
    }
}
