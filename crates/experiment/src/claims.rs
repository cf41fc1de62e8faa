//! Claims of processors: a container that runs on several of them has all at once, and none that another container runs on.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::cpus::Cpus;

/// The claims of an experiment's workers, in the order in which they were made.
///
/// A claim holds its processors when no earlier one wants any of them. So claims do not wait for each other in a circle, and one of
/// many processors is not passed over by those of one.
#[derive(Debug, Default)]
pub struct Claims {
    queue: Mutex<ClaimQueue>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct ClaimQueue {
    claims: Vec<(u64, Cpus)>,
    made: u64,
}

impl ClaimQueue {
    /// Whether no earlier claim wants a processor of the claim `number`.
    fn holds(&self, number: u64) -> bool {
        let earlier = || self.claims.iter().take_while(|(other, _)| *other != number);
        let own = self.claims.iter().find(|(other, _)| *other == number);
        own.is_some_and(|(_, cpus)| !earlier().any(|(_, other)| other.overlaps(cpus)))
    }
}

impl Claims {
    fn queue(&self) -> MutexGuard<'_, ClaimQueue> {
        // A worker that panicked has made its claim or not: the queue is whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other container runs on a processor of `cpus`.
    pub fn claim(&self, cpus: &Cpus) -> Claim<'_> {
        let mut queue = self.queue();
        queue.made += 1;
        let number = queue.made;
        queue.claims.push((number, cpus.clone()));
        while !queue.holds(number) {
            queue = self.released.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Claim { claims: self, number }
    }
}

/// Processors that a worker holds until this is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    claims: &'a Claims,
    number: u64,
}

impl Claim<'_> {
    /// Whether another worker waits for one of these processors.
    pub fn is_awaited(&self) -> bool {
        let queue = self.claims.queue();
        let mut from_here = queue.claims.iter().skip_while(|(number, _)| *number != self.number);
        let Some((_, own)) = from_here.next() else { return false };
        from_here.any(|(_, later)| later.overlaps(own))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut queue = self.claims.queue();
        queue.claims.retain(|(number, _)| *number != self.number);
        let is_awaited = !queue.claims.is_empty();
        drop(queue);
        if is_awaited {
            self.claims.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    #[test]
    fn a_later_claim_passes_only_those_that_want_none_of_its_processors() {
        let claims = Claims::default();
        let first = claims.claim(&cpus("0"));
        assert!(!first.is_awaited());
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let claim = |text: &'static str, length: usize| {
                let (claims, order) = (&claims, &order);
                scope.spawn(move || {
                    let _claim = claims.claim(&cpus(text));
                    order.lock().unwrap().push(text);
                });
                // Until the claim is in the queue, or was there.
                while claims.queue().made as usize != length {
                    thread::yield_now();
                }
            };
            claim("0-1", 2);
            assert!(first.is_awaited());
            // It wants a processor that the earlier one is to have.
            claim("1", 3);
            claim("2", 4);
            while order.lock().unwrap().is_empty() {
                thread::yield_now();
            }
            assert_eq!(*order.lock().unwrap(), ["2"]);
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), ["2", "0-1", "1"]);
        assert!(claims.queue().claims.is_empty());
    }

    #[test]
    fn no_processor_is_held_twice_and_nobody_waits_for_ever() {
        let (claims, users) = (Claims::default(), [const { AtomicU32::new(0) }; 4]);
        thread::scope(|scope| {
            for text in ["0", "1", "2", "3", "0-1", "1-2", "2-3", "0,3", "0-3"] {
                let (claims, users) = (&claims, &users);
                scope.spawn(move || {
                    let wanted = cpus(text);
                    for _ in 0..500 {
                        let _claim = claims.claim(&wanted);
                        for cpu in wanted.numbers() {
                            assert_eq!(users[*cpu].fetch_add(1, Ordering::SeqCst), 0);
                        }
                        for cpu in wanted.numbers() {
                            users[*cpu].fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
    }
}
