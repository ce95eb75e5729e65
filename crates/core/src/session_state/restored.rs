//! How much of what a session is to know the present one knows.

use super::{Knows, Standing, Subject, Telling, Verdict};

/// What became of a session's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// There was nothing to put back.
    Nothing,
    /// The session knows everything that it is to know.
    Everything,
    /// It does not.
    Partly {
        /// What it lacks, and why, in the operator's words; the first few, if there are many.
        missing: Vec<String>,
    },
}

impl Restored {
    /// The word in status and feeds.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing_to_restore",
            Self::Everything => "restored",
            Self::Partly { .. } => "partly",
        }
    }
}

impl Standing {
    /// Things that a report names one by one.
    const MOST_NAMED: usize = 10;

    /// How it stands with the present session, once it has been told everything that could be told at once.
    /// What was missed may still be told later, and what is wished for later counts too.
    pub fn restored(&self) -> Option<Restored> {
        let session = self.session.as_ref()?;
        if session.telling == Telling::UnderWay {
            return None;
        }
        let calls = session.calls.iter().map(|(tool, verdict)| match verdict {
            Verdict::Done => None,
            Verdict::Declined(why) | Verdict::Missed(why) => Some(format!("the call of `{tool}`: {why}")),
        });
        let level = self.level.as_ref().filter(|_| session.offers.level);
        let level =
            level.map(|level| lack(&session.level).map(|why| format!("the log level `{level}`: {why}")));
        let followed = self.following.followed().map(|(subject, knows)| {
            let can = session.offers.follow.tells_of(subject);
            let why = if can { lack(knows) } else { Some("the server does not tell of changes") };
            why.map(|why| match subject {
                Subject::Resource(uri) => format!("changes of `{uri}`: {why}"),
                Subject::Task(id) => format!("what becomes of the task `{id}`: {why}"),
            })
        });
        let (mut total, mut missing, mut unnamed) = (0, Vec::new(), 0);
        for lack in calls.chain(level).chain(followed) {
            total += 1;
            match lack {
                Some(lack) if missing.len() < Self::MOST_NAMED => missing.push(lack),
                Some(_) => unnamed += 1,
                None => {}
            }
        }
        if unnamed > 0 {
            missing.push(format!("and {unnamed} more"));
        }
        Some(match (total, missing.is_empty()) {
            (0, _) => Restored::Nothing,
            (_, true) => Restored::Everything,
            (_, false) => Restored::Partly { missing },
        })
    }

    /// The same, once for each session that had something to be told.
    pub fn take_restored(&mut self) -> Option<Restored> {
        let session = self.session.as_mut().filter(|session| session.telling == Telling::JustOver)?;
        session.telling = Telling::Over;
        self.restored().filter(|restored| *restored != Restored::Nothing)
    }
}

/// Why a session does not know something; `None` if it does.
fn lack(knows: &Knows) -> Option<&str> {
    match knows {
        Knows::Yes => None,
        Knows::No => Some("not told yet"),
        Knows::Declined(why) | Knows::Missed { why, .. } => Some(why),
    }
}
