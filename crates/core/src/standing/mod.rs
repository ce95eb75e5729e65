//! What a session is to know beyond its handshake, and what the present one knows of it: the calls that the
//! operator marked, the log level that callers wish for, and the resources whose changes somebody follows.
//!
//! The wishes belong to the upstream and outlive every session. A new session knows nothing, so everything
//! is due again; that is all there is to putting a session's state back. The marked calls are made before the
//! session is put to use, so that nobody's call goes before them. For the rest the shell asks for the next errand,
//! runs it, and says how it ended: one at a time, so that an end and a new beginning of the same wish never
//! overtake each other.

mod following;
mod restored;

pub use following::Full;
pub use restored::Restored;

use crate::ids::Epoch;
use crate::time::Mono;
use following::Following;
use std::collections::BTreeSet;
use std::time::Duration;

/// The wishes towards one upstream, and what its present session knows of them.
#[derive(Debug, Default)]
pub struct Standing {
    level: Option<String>,
    following: Following,
    session: Option<Session>,
}

/// What the server of a session can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// It takes a log level for the whole session.
    pub level: bool,
    /// How it is told which resources are followed.
    pub follow: Way,
}

/// How a server is told which resources are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Not at all.
    None,
    /// By a request for each.
    Each,
    /// By opening a stream that names them all; another set is another stream.
    Stream {
        /// The stream is wanted without any resource too: it tells of changed lists.
        lists: bool,
        /// It takes resources.
        resources: bool,
    },
}

/// Something to tell the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// The log level of the session.
    SetLevel(String),
    /// To tell of changes of some resources, and no more of others.
    Follow {
        /// Followed from now on.
        begin: Vec<String>,
        /// Followed no more.
        end: Vec<String>,
    },
    /// To tell of changes of exactly these resources, besides lists, on a new stream in place of the one there
    /// is. Nothing is left to tell of if there are none and lists are not wanted: then there is no new one.
    Listen {
        /// All that are followed.
        uris: Vec<String>,
    },
}

/// How an errand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Of [`Errand::SetLevel`].
    Level(Verdict),
    /// Of [`Errand::Follow`]: the verdict on each resource that was to be followed.
    Followed(Vec<(String, Verdict)>),
    /// Of [`Errand::Listen`]: the stream is open, and tells of these.
    Listening {
        /// The resources that the server will tell of.
        granted: Vec<String>,
    },
    /// Of [`Errand::Listen`]: there is no new stream.
    NotListening(Verdict),
}

/// What the server made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It knows.
    Done,
    /// It does not want to know; asking again in this session is of no use.
    Declined(String),
    /// It may not have heard it.
    Missed(String),
}

/// What one session knows.
#[derive(Debug)]
struct Session {
    epoch: Epoch,
    offers: Offers,
    /// The marked calls, by their tools, and what came of them.
    calls: Vec<(String, Verdict)>,
    level: Knows,
    stream: Knows,
    /// An errand that has not ended.
    under_way: Option<Errand>,
    telling: Telling,
}

/// How far a new session is with being told everything for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    UnderWay,
    /// Over, and nobody was told so yet.
    JustOver,
    Over,
}

/// Whether a session knows one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Knows {
    /// Not told yet.
    No,
    /// Told.
    Yes,
    /// Told, and refused.
    Declined(String),
    /// Told in vain; again at the time.
    Missed { retry_at: Mono, attempts: u32, why: String },
}

impl Knows {
    /// The pause after the first failure; it doubles.
    const FIRST_PAUSE: Duration = Duration::from_secs(1);
    const LONGEST_PAUSE: Duration = Duration::from_secs(60);

    fn is_due(&self, now: Mono) -> bool {
        match self {
            Self::No => true,
            Self::Missed { retry_at, .. } => *retry_at <= now,
            Self::Yes | Self::Declined(_) => false,
        }
    }

    fn retry_at(&self) -> Option<Mono> {
        match self {
            Self::Missed { retry_at, .. } => Some(*retry_at),
            Self::No | Self::Yes | Self::Declined(_) => None,
        }
    }

    fn learn(&mut self, now: Mono, verdict: Verdict) {
        let attempts = match self {
            Self::Missed { attempts, .. } => *attempts + 1,
            Self::No | Self::Yes | Self::Declined(_) => 0,
        };
        *self = match verdict {
            Verdict::Done => Self::Yes,
            Verdict::Declined(why) => Self::Declined(why),
            Verdict::Missed(why) => {
                let pause = (Self::FIRST_PAUSE * (1 << attempts.min(6))).min(Self::LONGEST_PAUSE);
                Self::Missed { retry_at: now + pause, attempts, why }
            }
        };
    }
}

impl Standing {
    /// Between the end of a stream and the attempt to open another one.
    const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);

    /// The log level that every session is to have.
    pub fn set_level(&mut self, level: &str) {
        if self.level.as_deref() != Some(level) {
            self.level = Some(level.to_owned());
            if let Some(session) = &mut self.session {
                session.level = Knows::No;
            }
        }
    }

    /// Somebody's call had the session of `epoch` told of this log level, which every session is to have
    /// from now on.
    pub fn level_told(&mut self, epoch: Epoch, level: &str) {
        self.set_level(level);
        if let Some(session) = self.session.as_mut().filter(|session| session.epoch == epoch) {
            // Two at once may arrive in any order.
            let other_under_way = matches!(session.under_way, Some(Errand::SetLevel(_)));
            session.level = if other_under_way { Knows::No } else { Knows::Yes };
        }
    }

    /// The log level that every session is to have.
    pub fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }

    /// Somebody follows a resource from now on.
    ///
    /// # Errors
    /// Too many are followed already.
    pub fn follow(&mut self, uri: &str) -> Result<(), Full> {
        self.following.add(uri)
    }

    /// Somebody follows it no more.
    pub fn unfollow(&mut self, uri: &str) {
        let told = self.session.as_ref().is_some_and(|session| session.under_way.is_some());
        self.following.remove(uri, told);
    }

    /// Whether there is a session.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the present session tells of changes of this resource.
    pub fn is_followed(&self, uri: &str) -> bool {
        self.session.is_some() && self.following.is_known(uri)
    }

    /// The followed resources that a change of `uri` concerns: itself, and those that it is a part of.
    pub fn concerned(&self, uri: &str) -> Vec<&str> {
        self.following.concerned(uri)
    }

    /// A new session, which knows nothing but what the marked `calls` have told it before it was put to use.
    pub fn begin_session(&mut self, epoch: Epoch, offers: Offers, calls: Vec<(String, Verdict)>) {
        self.end_session();
        self.session = Some(Session {
            epoch,
            offers,
            calls,
            level: Knows::No,
            stream: Knows::No,
            under_way: None,
            telling: Telling::UnderWay,
        });
    }

    /// The session is over, and what it knew with it.
    pub fn end_session(&mut self) {
        self.session = None;
        self.following.forget_session();
    }

    /// What the session of `epoch` is to be told next; nothing while an errand is under way.
    pub fn next(&mut self, now: Mono, epoch: Epoch) -> Option<Errand> {
        let session = self.session.as_mut().filter(|session| session.epoch == epoch)?;
        if session.under_way.is_some() {
            return None;
        }
        let level = self.level.as_ref().filter(|_| session.offers.level && session.level.is_due(now));
        let errand = match level {
            Some(level) => Some(Errand::SetLevel(level.clone())),
            None => match session.offers.follow {
                Way::None => None,
                Way::Each => self.following.due_each(now).map(|(begin, end)| Errand::Follow { begin, end }),
                Way::Stream { lists, resources } => {
                    let begins = lists && session.stream.is_due(now);
                    let changes = resources && self.following.is_due(now);
                    (begins || changes).then(|| {
                        let uris = if resources { self.following.wanted() } else { Vec::new() };
                        Errand::Listen { uris }
                    })
                }
            },
        };
        if errand.is_none() && session.telling == Telling::UnderWay {
            session.telling = Telling::JustOver;
        }
        session.under_way.clone_from(&errand);
        errand
    }

    /// When [`Self::next`] will have something to do that it has not now, if nobody wishes for anything else.
    pub fn wake_at(&self) -> Option<Mono> {
        let session = self.session.as_ref()?;
        let level = session.level.retry_at().filter(|_| session.offers.level && self.level.is_some());
        let (lists, resources) = match session.offers.follow {
            Way::None => (false, false),
            Way::Each => (false, true),
            Way::Stream { lists, resources } => (lists, resources),
        };
        let stream = session.stream.retry_at().filter(|_| lists);
        let resources = self.following.retry_at().filter(|_| resources);
        [level, stream, resources].into_iter().flatten().min()
    }

    /// The errand of the session of `epoch` ended. Answers with the resources whose followers may have missed
    /// a change meanwhile: they were followed before, in a session or on a stream that is over.
    pub fn ended(&mut self, now: Mono, epoch: Epoch, ended: Ended) -> Vec<String> {
        let Some(session) = self.session.as_mut().filter(|session| session.epoch == epoch) else {
            return Vec::new();
        };
        let Some(errand) = session.under_way.take() else { return Vec::new() };
        let again = match (errand, ended) {
            (Errand::SetLevel(told), Ended::Level(verdict)) => {
                // Another one may be wished for meanwhile, and is due then.
                if self.level.as_deref() == Some(&*told) {
                    session.level.learn(now, verdict);
                }
                Vec::new()
            }
            (Errand::Follow { begin: _, end }, Ended::Followed(verdicts)) => {
                self.following.ended(&end);
                self.following.learn(now, verdicts)
            }
            (Errand::Listen { uris }, Ended::Listening { granted }) => {
                session.stream = Knows::Yes;
                let granted: BTreeSet<String> = granted.into_iter().collect();
                let verdicts = uris.into_iter().map(|uri| {
                    let verdict = match granted.contains(&uri) {
                        true => Verdict::Done,
                        false => Verdict::Declined("the server did not acknowledge it".to_owned()),
                    };
                    (uri, verdict)
                });
                let verdicts: Vec<_> = verdicts.collect();
                self.following.replaced(&verdicts);
                self.following.learn(now, verdicts)
            }
            (Errand::Listen { uris }, Ended::NotListening(verdict)) => {
                // The stream that was there before goes on, with what it tells of.
                if session.stream != Knows::Yes {
                    session.stream.learn(now, verdict.clone());
                }
                let news = uris.into_iter().filter(|uri| !self.following.is_known(uri));
                let verdicts = news.map(|uri| (uri, verdict.clone())).collect();
                self.following.learn(now, verdicts)
            }
            // The shell reports on the errand that it was given.
            (Errand::SetLevel(_) | Errand::Follow { .. } | Errand::Listen { .. }, _) => Vec::new(),
        };
        self.following.sweep();
        again
    }

    /// The stream of the session of `epoch` ended, unasked.
    pub fn stream_ended(&mut self, now: Mono, epoch: Epoch) {
        let Some(session) = self.session.as_mut().filter(|session| session.epoch == epoch) else { return };
        let retry_at = now + Self::LISTEN_AGAIN_AFTER;
        let why = "its stream ended".to_owned();
        session.stream = Knows::Missed { retry_at, attempts: 0, why: why.clone() };
        self.following.lost(&Knows::Missed { retry_at, attempts: 0, why });
    }
}

#[cfg(test)]
mod tests;
