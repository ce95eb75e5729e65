//! What a session is to know beyond its handshake, and what the present one knows of it: the calls that the
//! operator marked, the log level that callers wish for, and the resources and tasks that somebody follows.
//!
//! The wishes belong to the upstream and outlive every session. A new session knows nothing, so everything
//! is due again; that is all there is to putting a session's state back. The marked calls are made before the
//! session is put to use, so that nobody's call goes before them. For the rest the shell asks for the next errand,
//! runs it, and says how it ended: one at a time, so that an end and a new beginning of the same wish never
//! overtake each other.

mod following;
mod portions;
mod restored;

pub use following::Full;
pub use portions::Portions;
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
    /// How it is told what is followed.
    pub follow: Way,
}

/// Something that a server tells of when it changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A resource, by its URI.
    Resource(String),
    /// A task, by the id that its server gave it.
    Task(String),
}

/// How a server is told what is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Not at all.
    None,
    /// By a request for each resource. It tells of tasks by itself, if it has any.
    Each,
    /// By opening a stream that names them all; another set is another stream.
    Stream {
        /// The stream is wanted without anything else too: it tells of changed lists.
        lists: bool,
        /// It takes resources.
        resources: bool,
        /// It takes tasks.
        tasks: bool,
    },
}

impl Way {
    fn tells_of(self, subject: &Subject) -> bool {
        match (self, subject) {
            (Self::None, _) | (Self::Each, Subject::Task(_)) => false,
            (Self::Each, Subject::Resource(_)) => true,
            (Self::Stream { resources, .. }, Subject::Resource(_)) => resources,
            (Self::Stream { tasks, .. }, Subject::Task(_)) => tasks,
        }
    }
}

/// Something to tell the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// The log level of the session.
    SetLevel(String),
    /// To tell of changes of some resources, and no more of others.
    Follow {
        /// Followed from now on.
        begin: Vec<Subject>,
        /// Followed no more.
        end: Vec<Subject>,
    },
    /// To tell of changes of exactly these, besides lists, on a new stream in place of the one there
    /// is. Nothing is left to tell of if there are none and lists are not wanted: then there is no new one.
    Listen {
        /// All that are followed.
        subjects: Vec<Subject>,
    },
}

/// How an errand ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Of [`Errand::SetLevel`].
    Level(Verdict),
    /// Of [`Errand::Follow`]: the verdict on each that was to be followed.
    Followed(Vec<(Subject, Verdict)>),
    /// Of [`Errand::Listen`]: the stream is open, and tells of these.
    Listening {
        /// What the server will tell of.
        granted: Vec<Subject>,
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
    /// Whether the stream may be replaced by one that tells of less: a server that refused that keeps the one it has
    /// for a while.
    smaller: Knows,
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

    /// Somebody follows this from now on.
    ///
    /// # Errors
    /// Too much is followed already.
    pub fn follow(&mut self, subject: &Subject) -> Result<(), Full> {
        self.following.add(subject)
    }

    /// Somebody follows it no more.
    pub fn unfollow(&mut self, subject: &Subject) {
        let told = self.session.as_ref().is_some_and(|session| session.under_way.is_some());
        self.following.remove(subject, told);
        if let Some(session) = &mut self.session {
            // What it has declined is not what it is asked for next.
            match session.smaller {
                Knows::Declined(_) => session.smaller = Knows::No,
                Knows::No | Knows::Yes | Knows::Missed { .. } => {}
            }
        }
    }

    /// Whether there is a session.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether the present session tells of changes of this.
    pub fn is_followed(&self, subject: &Subject) -> bool {
        self.session.is_some() && self.following.is_known(subject)
    }

    /// The followed resources that a change of `uri` concerns: itself, and those that it is a part of.
    pub fn concerned(&self, uri: &str) -> Vec<&Subject> {
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
            smaller: Knows::No,
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
                way @ Way::Each => {
                    self.following.due_each(now, way).map(|(begin, end)| Errand::Follow { begin, end })
                }
                way @ Way::Stream { lists, .. } => {
                    let begins = lists && session.stream.is_due(now);
                    let grows = self.following.has_to_begin(now, way);
                    let shrinks = session.smaller.is_due(now) && self.following.has_to_end(way);
                    (begins || grows || shrinks)
                        .then(|| Errand::Listen { subjects: self.following.wanted(way) })
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
        let way = session.offers.follow;
        let stream = session.stream.retry_at().filter(|_| matches!(way, Way::Stream { lists: true, .. }));
        let is_too_large = matches!(way, Way::Stream { .. }) && self.following.has_to_end(way);
        let smaller = session.smaller.retry_at().filter(|_| is_too_large);
        [level, stream, smaller, self.following.retry_at(way)].into_iter().flatten().min()
    }

    /// The errand of the session of `epoch` ended. Answers with what may have changed without its
    /// followers hearing of it: they followed it before, in a session or on a stream that is over.
    pub fn ended(&mut self, now: Mono, epoch: Epoch, ended: Ended) -> Vec<Subject> {
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
            (Errand::Listen { subjects }, Ended::Listening { granted }) => {
                session.stream = Knows::Yes;
                session.smaller = Knows::No;
                let granted: BTreeSet<Subject> = granted.into_iter().collect();
                let verdicts = subjects.into_iter().map(|subject| {
                    let verdict = match granted.contains(&subject) {
                        true => Verdict::Done,
                        false => Verdict::Declined("the server did not acknowledge it".to_owned()),
                    };
                    (subject, verdict)
                });
                let verdicts: Vec<_> = verdicts.collect();
                self.following.replaced(&verdicts);
                self.following.learn(now, verdicts)
            }
            (Errand::Listen { subjects }, Ended::NotListening(verdict)) => {
                // The stream that was there before goes on, with what it tells of.
                match session.stream {
                    Knows::Yes => session.smaller.learn(now, verdict.clone()),
                    Knows::No | Knows::Declined(_) | Knows::Missed { .. } => {
                        session.stream.learn(now, verdict.clone());
                    }
                }
                let news = subjects.into_iter().filter(|subject| !self.following.is_known(subject));
                let verdicts = news.map(|subject| (subject, verdict.clone())).collect();
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
        session.smaller = Knows::No;
        let told = session.under_way.is_some();
        self.following.lost(&Knows::Missed { retry_at, attempts: 0, why }, told);
    }
}

#[cfg(test)]
mod tests;
