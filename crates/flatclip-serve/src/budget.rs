//! Resources with a total limit and a limit per client: bytes, tickets, sessions. Dropping a charge returns its amount, so a
//! request that fails or is abandoned releases everything.

use crate::Client;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    capacity: usize,
    per_client: usize,
    small: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    peak: usize,
    clients: HashMap<Client, usize>,
}

/// An amount taken from a budget.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Budget,
    client: Option<Client>,
    amount: usize,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    Server,
    Client,
}

impl Budget {
    /// Without a limit per client.
    pub(crate) fn new(capacity: usize) -> Self {
        Self::shared(capacity, 1.0, 0, 0)
    }

    /// Limits each client to a share of the capacity, but to no less than `least`. Charges up to `small` may exceed both limits
    /// by an eighth, so that small requests are served next to large ones.
    pub(crate) fn shared(capacity: usize, share: f64, least: usize, small: usize) -> Self {
        let per_client = ((capacity as f64 * share).ceil() as usize).max(least).clamp(1, capacity.max(1));
        Self(Arc::new(Inner { capacity, per_client, small, state: Mutex::default(), freed: Condvar::new() }))
    }

    /// Takes an amount for a client, or returns the limit that was reached; never blocks.
    pub(crate) fn take(&self, client: Client, amount: usize) -> Result<Charge, Short> {
        let mut charge = Charge { budget: self.clone(), client: Some(client), amount: 0 };
        charge.grow(amount).map(|()| charge)
    }

    /// Blocks the thread until the amount is free. It is capped at 7/8 of the capacity, so that it can always be granted; small
    /// amounts may exceed the capacity by an eighth, so that they need not wait for large ones.
    pub(crate) fn wait(&self, amount: usize) -> Charge {
        let inner = &self.0;
        let small = amount <= inner.capacity / 16;
        let amount = amount.min(inner.capacity / 8 * 7);
        let allowed = if small { inner.capacity + inner.capacity / 8 } else { inner.capacity };
        let mut state = self.lock();
        while state.used > 0 && state.used + amount > allowed {
            state = inner.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.add(amount);
        Charge { budget: self.clone(), client: None, amount }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    pub(crate) fn used(&self) -> usize {
        self.lock().used
    }

    pub(crate) fn peak(&self) -> usize {
        self.lock().peak
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, amount: usize) {
        self.used += amount;
        self.peak = self.peak.max(self.used);
    }
}

impl Charge {
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), Short> {
        if amount == 0 {
            return Ok(()); // without an entry for the client, which nothing would remove
        }
        let Inner { mut capacity, mut per_client, small, .. } = *self.budget.0;
        if self.amount + amount <= small {
            (capacity, per_client) = (capacity + capacity / 8, per_client + capacity / 8);
        }
        let mut state = self.budget.lock();
        if state.used.saturating_add(amount) > capacity {
            return Err(Short::Server);
        }
        if let Some(client) = self.client {
            let own = state.clients.get(&client).map_or(amount, |own| own.saturating_add(amount));
            if own > per_client {
                return Err(Short::Client);
            }
            state.clients.insert(client, own);
        }
        state.add(amount);
        self.amount += amount;
        Ok(())
    }

    pub(crate) fn shrink_to(&mut self, amount: usize) {
        let back = self.amount.saturating_sub(amount);
        if back == 0 {
            return;
        }
        self.amount -= back;
        let mut state = self.budget.lock();
        state.used -= back;
        if let Some(client) = self.client
            && let Some(own) = state.clients.get_mut(&client)
        {
            *own -= back;
            if *own == 0 {
                state.clients.remove(&client);
            }
        }
        drop(state);
        self.budget.0.freed.notify_all();
    }

    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    pub(crate) fn client(&self) -> Client {
        self.client.unwrap_or_default()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Client {
        Client::of([127, 0, 0, last].into())
    }

    #[test]
    fn a_client_has_its_share_and_all_have_the_capacity() {
        let budget = Budget::shared(100, 0.5, 1, 0);
        let mut first = budget.take(client(1), 50).unwrap();
        assert_eq!(budget.take(client(1), 1).unwrap_err(), Short::Client);
        let second = budget.take(client(2), 40).unwrap();
        assert_eq!(budget.take(client(3), 11).unwrap_err(), Short::Server);
        first.shrink_to(20);
        assert_eq!((budget.used(), budget.peak()), (60, 90));
        assert!(first.grow(31).is_err() && first.grow(30).is_ok());
        let nothing = budget.take(client(4), 0).unwrap();
        drop((first, second, nothing));
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().clients.is_empty(), "a client that left is forgotten");
    }

    #[test]
    fn small_charges_go_beside_large_ones() {
        let budget = Budget::shared(800, 0.5, 1, 10);
        let large = budget.take(client(1), 400).unwrap();
        let mut small = budget.take(client(1), 10).unwrap();
        assert_eq!(small.grow(1).unwrap_err(), Short::Client);
        let others: Vec<Charge> = (2..4).filter_map(|number| budget.take(client(number), 195).ok()).collect();
        assert_eq!(others.len(), 2);
        assert_eq!(budget.take(client(9), 11).unwrap_err(), Short::Server);
        let small: Vec<Charge> = (0..20).filter_map(|_| budget.take(client(9), 10).ok()).collect();
        assert_eq!((small.len(), budget.used()), (10, 900), "an eighth at most");
        drop(large);
    }

    #[test]
    fn who_waits_gets_it_when_it_is_free_and_small_amounts_do_not_wait() {
        let budget = Budget::new(160);
        let large = budget.wait(1000);
        assert_eq!(large.amount(), 140);
        let small = budget.wait(10);
        let waiting = {
            let budget = budget.clone();
            std::thread::spawn(move || budget.wait(100).amount())
        };
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!waiting.is_finished());
        drop((large, small));
        assert_eq!(waiting.join().unwrap(), 100);
    }
}
