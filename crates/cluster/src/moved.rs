//! Records of sessions that moved: lookup, takeover by compare-and-set, and writing back after the store lost them.

use crate::StoreError;
use crate::connection::{Script, cmd};
use crate::format;
use crate::store::{Store, millis, read_place};
use gripfast_core::placement::place::{BootId, OwnerEpoch, Place, ReplicaName, SessionId, SessionOwner};
use gripfast_core::placement::routing::{TakeoverCause, TakeoverReply};
use std::sync::LazyLock;
use std::time::Duration;

static TAKE_OVER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/take_over.lua")))
});
static PUT_BACK: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("scripts/common.lua"), include_str!("scripts/put_back.lua")))
});

/// Records that one script writes back, so that the store answers others in between.
const BATCH: usize = 500;

impl Store {
    /// The owner of a session that moved; `None` if it did not.
    ///
    /// # Errors
    ///
    /// If the store is unreachable or the record cannot be read.
    pub async fn look_up(&self, session: &SessionId) -> Result<Option<SessionOwner>, StoreError> {
        let key = self.settings.namespace.key(&format!("moved:{}", session_text(session)));
        let stored: Option<String> = self.connection.query(cmd("GET").arg(&key)).await?;
        stored.map(|stored| read_owner(&key, &stored)).transpose()
    }

    /// Makes this replica the owner of a session.
    ///
    /// # Errors
    ///
    /// If the store is unreachable. The takeover may have been performed; the next lookup shows it.
    pub async fn take_over(
        &self,
        session: &SessionId,
        from: &SessionOwner,
        cause: TakeoverCause,
    ) -> Result<TakeoverReply, StoreError> {
        let spec = self.settings.spec;
        let cause = match cause {
            TakeoverCause::RecordEnded => "record_ended",
            TakeoverCause::Refused => "refused",
        };
        let mut script = TAKE_OVER.prepare_invoke();
        script.arg(self.prefix()).arg(self.place()).arg(session_text(session));
        script.arg(from.place.to_string()).arg(from.epoch.number()).arg(cause);
        script.arg(millis(self.settings.retention)).arg(millis(spec.lease)).arg(millis(spec.grace()));
        let (result, number, text): (String, u64, String) = self.connection.run(&script).await?;
        let malformed = || StoreError::Malformed("takeover".to_owned());
        let epoch = OwnerEpoch::from_number(number);
        match result.as_str() {
            "taken" => {
                let previous = OwnerEpoch::from_number(text.parse().map_err(|_| malformed())?);
                Ok(TakeoverReply::Taken { epoch, previous })
            }
            "owned" => {
                let place = read_place(&text).ok_or_else(malformed)?;
                Ok(TakeoverReply::Owned(SessionOwner { place, epoch }))
            }
            "live" => Ok(TakeoverReply::OwnerIsLive),
            "grace" => Ok(TakeoverReply::Grace { left: Duration::from_millis(number) }),
            _ => Err(malformed()),
        }
    }

    /// Writes records of takeovers back and renews their lifetime. Returns the owners that the store knows then.
    ///
    /// # Errors
    ///
    /// If the store is unreachable; some records may have been written.
    pub async fn put_back(
        &self,
        records: &[(SessionId, OwnerEpoch)],
        last_takeover: OwnerEpoch,
    ) -> Result<Vec<(SessionId, SessionOwner)>, StoreError> {
        let mut current = Vec::with_capacity(records.len());
        let batches = records.chunks(BATCH).count();
        for (number, batch) in records.chunks(BATCH).enumerate() {
            // The replica repeats everything until the last batch is written.
            let is_last = number + 1 == batches;
            let last = if is_last { last_takeover.number().to_string() } else { String::new() };
            let mut script = PUT_BACK.prepare_invoke();
            script.arg(self.prefix()).arg(self.place()).arg(last);
            script.arg(millis(self.settings.retention)).arg(millis(self.settings.spec.lease));
            for (session, epoch) in batch {
                let origin = session.origin.to_string();
                script.arg(session_text(session)).arg(epoch.number()).arg(origin);
            }
            let stored: Vec<String> = self.connection.run(&script).await?;
            for ((session, _), stored) in batch.iter().zip(stored) {
                current.push((session.clone(), read_owner("moved", &stored)?));
            }
        }
        Ok(current)
    }
}

/// A session as the store has it: `NAME/BOOT/NUMBER`.
pub(crate) fn session_text(session: &SessionId) -> String {
    format!("{}/{}", session.origin, session.number)
}

fn read_session(text: &str) -> Option<SessionId> {
    let mut parts = text.split('/');
    let (name, boot, number) = (parts.next()?, parts.next()?, parts.next()?);
    let origin = Place { name: ReplicaName::new(name)?, boot: BootId::parse(boot)? };
    Some(SessionId { origin, number: number.parse().ok()? })
}

/// Reads `FORMAT:EPOCH:PLACE`.
pub(crate) fn read_owner(key: &str, stored: &str) -> Result<SessionOwner, StoreError> {
    let malformed = || StoreError::Malformed(key.to_owned());
    let (epoch, place) = format::decode(key, stored)?.split_once(':').ok_or_else(malformed)?;
    let epoch = OwnerEpoch::from_number(epoch.parse().map_err(|_| malformed())?);
    Ok(SessionOwner { place: read_place(place).ok_or_else(malformed)?, epoch })
}

/// Reads the notice of a takeover.
pub(crate) fn read_notice(session: &str, owner: &str) -> Option<(SessionId, SessionOwner)> {
    Some((read_session(session)?, read_owner("taken", owner).ok()?))
}
