//! Locks that ignore poisoning. A panic while a lock is held leaves a value that the next holder can use: every value
//! behind a lock of this project is valid between any two statements. Also for programs that embed the library.

use std::fmt;
use std::sync::{self, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Mutual exclusion, like [`std::sync::Mutex`].
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a lock around a value.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until no other thread holds the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of a lock that no other thread can hold.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shared reading and exclusive writing, like [`std::sync::RwLock`].
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates a lock around a value.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Blocks until no other thread writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until no other thread reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of a lock that no other thread can hold.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Wakes threads that wait for a change of the value in a [`Mutex`], like [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Blocks while `condition` holds.
    pub fn wait_while<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks while `condition` holds, at most for `timeout`.
    pub fn wait_timeout_while<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        let waited = self.0.wait_timeout_while(guard, timeout, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_works_after_a_thread_panicked_with_it() {
        let (mutex, shared) = (Mutex::new(1), RwLock::new(1));
        std::thread::scope(|scope| {
            let panicked = scope.spawn(|| {
                let (_mutex, _shared) = (mutex.lock(), shared.write());
                std::panic::resume_unwind(Box::new("test"));
            });
            assert!(panicked.join().is_err());
        });
        assert!(mutex.0.is_poisoned() && shared.0.is_poisoned());
        let (mut mutex, mut shared) = (mutex, shared);
        *mutex.lock() += 1;
        *shared.write() += 1;
        assert_eq!((*mutex.lock(), *shared.read()), (2, 2));
        assert_eq!((*mutex.get_mut(), *shared.get_mut()), (2, 2));
        assert_eq!(mutex.into_inner(), 2);
    }
}
