//! The examples are programs that run: each as it stands, from start to end.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

#[path = "../examples/answer_many.rs"]
mod answer_many;
#[path = "../examples/classify.rs"]
mod classify;
#[path = "../examples/own_adapter.rs"]
mod own_adapter;
#[path = "../examples/own_features.rs"]
mod own_features;

#[test]
fn a_folder_is_answered() {
    classify::run(std::iter::empty()).unwrap();
}

#[test]
fn features_of_another_model_are_answered() {
    own_features::main().unwrap();
}

#[test]
fn an_adapter_of_ones_own_is_registered() {
    own_adapter::main().unwrap();
}

#[test]
fn features_of_many_images_are_answered_by_every_kind_of_method() {
    for method in ["zero", "tda", "transclip"] {
        answer_many::run(&[method.to_owned()]).unwrap();
    }
}
