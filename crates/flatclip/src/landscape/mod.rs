//! Loss surfaces around a prompt.
