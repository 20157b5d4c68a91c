//! The `flatclip` command.

fn main() {}
