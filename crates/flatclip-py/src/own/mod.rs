//! Methods registered from Python. They can be used wherever a built-in method can.
//!
//! The registry of the library holds `'static` entries. Each registration with different code or options leaks one entry (a
//! few hundred bytes, and at most [`MOST`] entries per process); registering the same method again reuses its entry. The
//! Python objects themselves are not leaked: an entry holds the last one that was registered for it.

mod adapters;
mod call;
mod spec;

pub(crate) use call::failed;

use crate::errors::OrRaise as _;
use crate::lock;
use flatclip::methods::{AnyAdapter, Build, DynamicMethod, Kind};
use flatclip::{Error, Registry};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// Maximum registrations per process: more than a notebook reaches in which a method is edited and registered again for days.
const MOST: usize = 1000;

pub(crate) struct Own {
    name: String,
    kind: Kind,
    /// Version and source digest, as runs record them.
    identity: String,
    /// Whether it takes several images at once, `[N, V, D]`.
    vectorised: bool,
    /// Whether it returns logits instead of probabilities.
    logits: bool,
    /// Whether it takes a random number generator.
    rng: bool,
    /// The function or class that was registered last.
    callable: Mutex<Arc<Py<PyAny>>>,
}

struct Entry {
    own: &'static Own,
    spec: &'static flatclip::methods::AdapterSpec,
    key: String,
}

#[derive(Default)]
struct Registered {
    /// Indices into `made`: the current entry of each name.
    known: Vec<usize>,
    made: Vec<Entry>,
}

static REGISTERED: Mutex<Registered> = Mutex::new(Registered { known: Vec::new(), made: Vec::new() });

impl Own {
    fn callable(&self) -> Arc<Py<PyAny>> {
        Arc::clone(&lock(&self.callable))
    }
}

impl DynamicMethod for Own {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn build(&'static self, options: &toml::Table) -> flatclip::Result<AnyAdapter> {
        adapters::build(self, options)
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

/// The built-in methods and those that were registered.
pub(crate) fn registry() -> flatclip::Result<Registry> {
    let registered = lock(&REGISTERED);
    let specs = registered.known.iter().map(|&place| registered.made[place].spec);
    specs.into_iter().try_fold(Registry::builtin(), Registry::with)
}

/// Registers a function or class as an adapter; the same name again replaces it.
#[pyfunction]
#[pyo3(signature = (about, callable))]
pub(crate) fn register_adapter(py: Python<'_>, about: spec::About, callable: Py<PyAny>) -> PyResult<()> {
    let key = about.key();
    let kind = about.kind().or_raise(py)?;
    spec::check_name(&about.name).or_raise(py)?;
    if let Ok(builtin) = Registry::builtin().adapter(&about.name) {
        let reason = format!("`{}` is taken by the built-in method {}; choose another", about.name, builtin.name);
        return Err(Error::config("name", reason)).or_raise(py);
    }
    // Dropped after the lock is released: dropping a Python object may run arbitrary code.
    let mut _earlier = None;
    let mut registered = lock(&REGISTERED);
    let same = registered.made.iter().position(|entry| entry.key == key);
    let place = match same {
        Some(place) => {
            let mut slot = lock(&registered.made[place].own.callable);
            _earlier = Some(std::mem::replace(&mut *slot, Arc::new(callable)));
            place
        }
        None if registered.made.len() >= MOST => {
            let hint = "start a new process".to_owned();
            let what = "registered methods of one process".to_owned();
            let asked = registered.made.len() as u64 + 1;
            return Err(Error::Limit { what, asked, allowed: MOST as u64, hint }).or_raise(py);
        }
        None => {
            let options = about.options().or_raise(py)?;
            let own: &'static Own = Box::leak(Box::new(Own {
                name: about.name.clone(),
                kind,
                identity: about.identity(),
                vectorised: about.vectorised,
                logits: about.logits,
                rng: about.rng,
                callable: Mutex::new(Arc::new(callable)),
            }));
            let spec = about.leak(Build::Dynamic(own), options);
            registered.made.push(Entry { own, spec, key });
            registered.made.len() - 1
        }
    };
    let names: Vec<&str> = registered.known.iter().map(|&known| registered.made[known].spec.name).collect();
    match names.iter().position(|name| *name == about.name) {
        Some(known) => registered.known[known] = place,
        None => registered.known.push(place),
    }
    Ok(())
}

/// Removes a registered adapter; false if no adapter has this name.
#[pyfunction]
pub(crate) fn unregister_adapter(name: &str) -> bool {
    let mut registered = lock(&REGISTERED);
    let Registered { known, made } = &mut *registered;
    let before = known.len();
    known.retain(|&place| made[place].spec.name != name);
    known.len() < before
}
