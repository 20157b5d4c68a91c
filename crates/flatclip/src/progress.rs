//! Progress of long work, and its cancellation.

/// Whoever watches long work: a bar on a terminal, an event stream of a server, a notebook, or nobody (`()`).
///
/// Work is a sequence of stages. Calls come from the thread that does the work; a watcher may be asked from several
/// threads whether to stop.
pub trait Progress: Sync {
    /// A stage begins: what is done, and how many steps it has where that is known.
    fn start(&self, _stage: &str, _total: Option<u64>) {}

    /// So many steps of the stage are done; `status` is a short text for people, such as the accuracy so far.
    fn advance(&self, _done: u64, _status: &str) {}

    /// Something worth knowing that is not a result.
    fn note(&self, _text: &str) {}

    /// Something that may spoil the result.
    fn warn(&self, _text: &str) {}

    /// The stage that began last has ended.
    fn finish(&self) {}

    /// Whether to save what is done and leave with [`Error::Interrupted`](crate::Error::Interrupted).
    fn cancelled(&self) -> bool {
        false
    }
}

/// Nobody watches.
impl Progress for () {}
