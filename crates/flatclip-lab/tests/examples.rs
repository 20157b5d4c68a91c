//! The examples are programs that run: each as it stands, from start to end.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

#[path = "../examples/evaluate.rs"]
mod evaluate;
#[path = "../examples/tune_and_use.rs"]
mod tune_and_use;

#[test]
fn a_prompt_is_tuned_and_used() {
    tune_and_use::main().unwrap();
}

#[test]
fn an_evaluation_is_watched() {
    evaluate::main().unwrap();
}
