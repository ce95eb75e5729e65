//! What callers want this upstream to know whatever session it is in, with those who wait for it and those
//! who hear of it. `core::standing` decides what is due; `errands` does it.

use super::answer::Answer;
use super::exchange::Patience;
use super::{Hold, Upstream};
use crate::client::Principal;
use crate::transport::{Listener, Underway};
use gripfast_core::failure::{CallError, Code, Failure, Outcome as Fate};
use gripfast_core::ids::Epoch;
use gripfast_core::standing::{Ended, Errand, Full, Offers, Portions, Restored, Standing, Subject, Verdict};
use gripfast_core::time::Mono;
use gripfast_wire::{Era, subscriptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, oneshot};

/// The wishes towards one upstream.
#[derive(Default)]
pub(crate) struct Wishes {
    table: Mutex<Table>,
    /// Wakes whoever runs errands: there may be another one.
    pub(super) due: Notify,
    /// Wakes whoever waits for a session.
    begun: Notify,
}

/// Which of all the sessions that were ever told of these wishes. Epochs do not tell: those of an instance that is
/// still leaving and of the one in its place begin with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionNumber(Epoch);

#[derive(Default)]
struct Table {
    standing: Standing,
    /// The number of the last session that began.
    last_session: Epoch,
    /// Who follows how much.
    portions: Portions<Principal>,
    /// Who hears of changes.
    ears: BTreeMap<Subject, Vec<Ear>>,
    ears_made: u64,
    /// Who waits for the server to know. They are let go with the session.
    waiting: BTreeMap<Subject, Vec<oneshot::Sender<Told>>>,
    /// The stream that is being opened, in which session and by which request, and who waits for its acknowledgement.
    opening: Option<(SessionNumber, u64, oneshot::Sender<Vec<Subject>>)>,
}

struct Ear {
    number: u64,
    listener: Arc<dyn Listener>,
}

/// What came of telling the server one thing.
#[derive(Debug, Clone)]
pub(super) enum Told {
    Done,
    /// The server's own answer, an error.
    Declined(Answer),
    Missed(Failure, Fate),
}

impl Told {
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Done => Verdict::Done,
            Self::Declined(answer) => Verdict::Declined(match answer.result() {
                Err((code, message)) => format!("{message} ({code})"),
                Ok(_) => "declined".to_owned(),
            }),
            Self::Missed(failure, _) => Verdict::Missed(failure.to_string()),
        }
    }
}

/// How it stands with something that somebody wants to follow.
enum Place {
    /// The server knows.
    Known,
    /// It is being told.
    Waiting(oneshot::Receiver<Told>),
    /// There is no session to tell it to.
    NoSession,
}

impl Wishes {
    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session, in the place of whichever there was.
    pub(super) fn begin_session(&self, offers: Offers, calls: Vec<(String, Verdict)>) -> SessionNumber {
        let mut table = self.lock();
        table.last_session = table.last_session.next();
        let number = table.last_session;
        table.standing.begin_session(number, offers, calls);
        table.let_go();
        drop(table);
        self.begun.notify_waiters();
        SessionNumber(number)
    }

    /// A session is over. If there is another one already, that goes on.
    pub(super) fn end_session(&self, session: SessionNumber) {
        let mut table = self.lock();
        if table.is_present(session) {
            table.standing.end_session();
            table.let_go();
        }
    }

    pub(super) fn next(&self, now: Mono, session: SessionNumber) -> Option<Errand> {
        self.lock().standing.next(now, session.0)
    }

    /// The log level that every session is to have.
    pub(super) fn level(&self) -> Option<String> {
        self.lock().standing.level().map(str::to_owned)
    }

    pub(super) fn level_told(&self, session: SessionNumber, level: &str) {
        self.lock().standing.level_told(session.0, level);
    }

    pub(super) fn restored(&self) -> Option<Restored> {
        self.lock().standing.restored()
    }

    /// The same of this session, once if it had something to be told.
    pub(super) fn take_restored(&self, session: SessionNumber) -> Option<Restored> {
        let mut table = self.lock();
        if table.is_present(session) { table.standing.take_restored() } else { None }
    }

    pub(super) fn wake_at(&self, session: SessionNumber) -> Option<Mono> {
        let table = self.lock();
        table.standing.wake_at().filter(|_| table.is_present(session))
    }

    /// An errand ended, with this for each that it was about. Whoever waits is told, and whoever may have missed the
    /// change of a resource looks again. Answers with the tasks that somebody has to look at for their followers.
    pub(super) fn ended(
        &self,
        now: Mono,
        session: SessionNumber,
        ended: Ended,
        told: Vec<(Subject, Told)>,
    ) -> Vec<String> {
        let mut table = self.lock();
        if !table.is_present(session) {
            return Vec::new();
        }
        let missed = table.standing.ended(now, session.0, ended);
        let waiting: Vec<_> = told
            .into_iter()
            .filter_map(|(about, told)| Some((table.waiting.remove(&about)?, told)))
            .collect();
        let (mut ears, mut tasks) = (Vec::new(), Vec::new());
        for subject in missed {
            let followers = table.ears_of(&subject);
            match subject {
                Subject::Resource(uri) => ears.push((followers, subscriptions::updated(&uri))),
                Subject::Task(id) => tasks.push(id),
            }
        }
        drop(table);
        for (waiting, told) in waiting {
            for waiter in waiting {
                // Whoever lost interest meanwhile does not mind.
                let _ = waiter.send(told.clone());
            }
        }
        for (ears, message) in ears {
            ears.iter().for_each(|ear| ear.said(&message));
        }
        tasks
    }

    pub(super) fn stream_ended(&self, now: Mono, session: SessionNumber) {
        self.lock().standing.stream_ended(now, session.0);
    }

    /// The stream of request `id` is being opened; answers with what will be granted.
    pub(super) fn opening(&self, session: SessionNumber, id: u64) -> oneshot::Receiver<Vec<Subject>> {
        let (granted, acknowledged) = oneshot::channel();
        let mut table = self.lock();
        if table.is_present(session) {
            table.opening = Some((session, id, granted));
        }
        acknowledged
    }

    /// The stream of request `id` is open.
    pub(super) fn acknowledged(&self, session: SessionNumber, id: u64, subjects: Vec<Subject>) {
        let opening = {
            let mut table = self.lock();
            table.opening.take_if(|(of, opening, _)| (*of, *opening) == (session, id))
        };
        if let Some((_, _, granted)) = opening {
            let _ = granted.send(subjects);
        }
    }

    /// A resource changed: whoever follows it, or what it is a part of, hears the server's own message.
    pub(super) fn updated(&self, uri: &str, message: &[u8]) {
        let ears: Vec<_> = {
            let table = self.lock();
            table.standing.concerned(uri).into_iter().flat_map(|followed| table.ears_of(followed)).collect()
        };
        ears.iter().for_each(|ear| ear.said(message));
    }

    /// Something became of a task: whoever follows it hears this.
    pub(super) fn task_said(&self, id: &str, message: &[u8]) {
        let ears = self.lock().ears_of(&Subject::Task(id.to_owned()));
        ears.iter().for_each(|ear| ear.said(message));
    }

    /// A new link carries the subscriptions of these principals.
    pub(super) fn serve_by(&self, link: &Underway) {
        self.lock().portions.followers().for_each(|who| link.serves(who));
    }

    fn add(&self, subject: &Subject, who: &Principal, listener: Arc<dyn Listener>) -> Result<u64, Full> {
        let mut table = self.lock();
        table.portions.take(who, subject)?;
        if let Err(full) = table.standing.follow(subject) {
            table.portions.give_back(who, subject);
            return Err(full);
        }
        table.ears_made += 1;
        let number = table.ears_made;
        table.ears.entry(subject.clone()).or_default().push(Ear { number, listener });
        Ok(number)
    }

    fn remove(&self, subject: &Subject, who: &Principal, number: u64) {
        let mut table = self.lock();
        table.portions.give_back(who, subject);
        table.standing.unfollow(subject);
        if let Some(ears) = table.ears.get_mut(subject) {
            ears.retain(|ear| ear.number != number);
            if ears.is_empty() {
                table.ears.remove(subject);
                table.waiting.remove(subject);
            }
        }
        drop(table);
        self.due.notify_waiters();
    }

    fn place(&self, subject: &Subject) -> Place {
        let mut table = self.lock();
        if !table.standing.has_session() {
            return Place::NoSession;
        }
        if table.standing.is_followed(subject) {
            return Place::Known;
        }
        let (tell, told) = oneshot::channel();
        let waiting = table.waiting.entry(subject.clone()).or_default();
        // Whoever lost interest meanwhile takes no room.
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(tell);
        drop(table);
        self.due.notify_waiters();
        Place::Waiting(told)
    }
}

impl Table {
    fn is_present(&self, session: SessionNumber) -> bool {
        self.standing.has_session() && self.last_session == session.0
    }

    fn ears_of(&self, subject: &Subject) -> Vec<Arc<dyn Listener>> {
        self.ears.get(subject).into_iter().flatten().map(|ear| Arc::clone(&ear.listener)).collect()
    }

    /// Whoever waits for something of a session that is over asks again.
    fn let_go(&mut self) {
        self.waiting.clear();
        self.opening = None;
    }
}

/// Something whose changes are told of until this is dropped.
pub(crate) struct Following {
    wishes: Arc<Wishes>,
    pub(crate) subject: Subject,
    who: Principal,
    number: u64,
    /// A lazy server that sleeps tells nobody anything.
    _hold: Hold,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.wishes.remove(&self.subject, &self.who, self.number);
    }
}

/// What came of wanting to follow something.
pub(crate) enum Followed {
    Following(Following),
    /// The server declined, in its own words.
    Declined(Answer),
    /// The server does not tell of such changes.
    Unsupported,
}

impl Upstream {
    /// Follows something. Waits as a call does: for the link, and then for the server's word.
    ///
    /// Dropping the future leaves nothing behind.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        subject: Subject,
        who: Principal,
        listener: Arc<dyn Listener>,
        deadline: Option<Mono>,
    ) -> Result<Followed, CallError> {
        let number = self.wishes.add(&subject, &who, listener).map_err(|full| {
            let text = format!("upstream `{}` cannot be followed further: {full}", self.name);
            CallError::new(Code::Overloaded, &self.name, Fate::NotSent, text)
        })?;
        if let Some(live) = self.live() {
            live.underway.serves(&who);
        }
        let wishes = Arc::clone(&self.wishes);
        let mut patience = Patience::new(self, &who, deadline);
        let following = Following { wishes, subject, who, number, _hold: self.hold() };
        let limit = self.clock.mono() + self.settings().supervision.timeouts.call;
        let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
        let out_of_time = |fate| {
            let failure = Failure::TimedOut(self.settings().supervision.timeouts.call);
            CallError::from_failure(&self.name, &failure, fate)
        };
        loop {
            // Registered before asking: what comes in between is not missed.
            let (begun, changed) = (self.wishes.begun.notified(), self.changed.notified());
            tokio::pin!(begun, changed);
            begun.as_mut().enable();
            changed.as_mut().enable();
            let ticket = self.admitted(&mut patience, || ()).await?;
            patience.has_link();
            let epoch = ticket.epoch();
            // What is asked for is asked once for everybody, outside of anybody's slot.
            drop(ticket);
            let Some(live) = self.live().filter(|live| live.epoch == epoch) else {
                self.in_passing(&patience).await?;
                continue;
            };
            let can = match following.subject {
                Subject::Resource(_) => live.server.capabilities.resources_subscribe,
                Subject::Task(_) => live.session.era == Era::Modern && live.server.has_tasks(),
            };
            if !can {
                return Ok(Followed::Unsupported);
            }
            let told = match self.wishes.place(&following.subject) {
                Place::Known => return Ok(Followed::Following(following)),
                Place::NoSession => {
                    // The link is up, and its session about to begin; or both have just ended.
                    tokio::select! {
                        () = begun => continue,
                        () = changed => continue,
                        () = tokio::time::sleep_until(self.clock.instant(limit)) => {
                            return Err(out_of_time(Fate::NotSent));
                        }
                    }
                }
                Place::Waiting(told) => told,
            };
            match tokio::time::timeout_at(self.clock.instant(limit), told).await {
                Ok(Ok(Told::Done)) => return Ok(Followed::Following(following)),
                Ok(Ok(Told::Declined(answer))) => return Ok(Followed::Declined(answer)),
                Ok(Ok(Told::Missed(failure, fate))) => {
                    return Err(CallError::from_failure(&self.name, &failure, fate));
                }
                // Its session is over; the next one will be told.
                Ok(Err(_)) => {}
                Err(_) => return Err(out_of_time(Fate::Unknown)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gripfast_core::standing::Way;

    const OFFERS: Offers = Offers { level: true, follow: Way::Each };

    struct Deaf;

    impl Listener for Deaf {
        fn said(&self, _message: &[u8]) {}
    }

    fn noon() -> Mono {
        Mono::at(std::time::Duration::from_secs(1000))
    }

    #[test]
    fn who_loses_interest_before_the_server_was_told_leaves_nothing_behind() {
        let wishes = Wishes::default();
        wishes.begin_session(OFFERS, Vec::new());
        let news = Subject::Resource("x://news".to_owned());
        let stays = wishes.add(&news, &Principal::local(), Arc::new(Deaf)).unwrap();
        for _ in 0..3 {
            let leaves = wishes.add(&news, &Principal::local(), Arc::new(Deaf)).unwrap();
            drop(wishes.place(&news));
            wishes.remove(&news, &Principal::local(), leaves);
        }
        assert!(wishes.lock().waiting[&news].len() <= 1);
        wishes.remove(&news, &Principal::local(), stays);
        let table = wishes.lock();
        assert!(table.waiting.is_empty() && table.ears.is_empty());
    }

    #[test]
    fn d04_what_an_instance_that_leaves_does_and_says_is_nothing_to_the_session_of_the_next() {
        let wishes = Wishes::default();
        let news = Subject::Resource("x://news".to_owned());
        wishes.add(&news, &Principal::local(), Arc::new(Deaf)).unwrap();
        let old = wishes.begin_session(OFFERS, Vec::new());
        let errand = wishes.next(noon(), old).unwrap();
        assert_eq!(errand, Errand::Follow { begin: vec![news.clone()], end: Vec::new() });
        let new = wishes.begin_session(OFFERS, Vec::new());
        assert_ne!(old, new);
        assert_eq!(wishes.next(noon(), old), None, "its errands are of no use any more");
        let mut told = match wishes.place(&news) {
            Place::Waiting(told) => told,
            Place::Known | Place::NoSession => panic!("the new session was told nothing yet"),
        };
        let done = || Ended::Followed(vec![(news.clone(), Verdict::Done)]);
        wishes.ended(noon(), old, done(), vec![(news.clone(), Told::Done)]);
        assert!(told.try_recv().is_err(), "the old server knows, which helps nobody");
        wishes.end_session(old);
        assert_eq!(wishes.next(noon(), new), Some(errand), "the session goes on");
        wishes.ended(noon(), new, done(), vec![(news.clone(), Told::Done)]);
        assert!(matches!(told.try_recv(), Ok(Told::Done)));
        wishes.end_session(new);
        assert!(matches!(wishes.place(&news), Place::NoSession));
    }
}
