//! Files that torch itself wrote (`fixtures/torch/make.py`).

use super::forge::fixture;
use crate::weights::Stored;
use crate::weights::torch_file::{self, Value};

fn tensor<'a>(value: &'a Value, key: &str) -> &'a Stored {
    match value.get(key) {
        Some(Value::Tensor(tensor)) => tensor,
        other => panic!("{key}: {other:?}"),
    }
}

fn counting(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn a_training_checkpoint_with_optimizer_and_scheduler_loads() {
    for name in ["torch/coop.pth.tar-50", "torch/coop-legacy.pth.tar-50"] {
        let file = torch_file::load(fixture(name)).unwrap_or_else(|e| panic!("{e}"));
        assert!(matches!(file.get("epoch"), Some(Value::None)));
        let state = file.state_dict();
        let names: Vec<String> = state.tensors().into_iter().map(|tensor| tensor.name).collect();
        assert_eq!(names, ["ctx", "token_prefix"]);
        assert_eq!(tensor(state, "ctx").shape, [4, 6]);
        assert_eq!(tensor(state, "ctx").values().unwrap(), counting(24));
        assert_eq!(tensor(state, "token_prefix").values().unwrap(), counting(18));
    }
}

#[test]
fn views_parameters_types_and_nesting_load() {
    for name in ["torch/varied.pt", "torch/varied-legacy.pt"] {
        let file = torch_file::load(fixture(name)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(tensor(&file, "base").values().unwrap(), counting(24));
        assert_eq!(tensor(&file, "transposed").shape, [4, 6]);
        assert_eq!(tensor(&file, "transposed").values().unwrap()[..7], [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 1.0]);
        assert_eq!(tensor(&file, "slice").values().unwrap(), [9.0, 10.0, 13.0, 14.0]);
        assert_eq!(tensor(&file, "parameter").values().unwrap(), counting(4));
        for key in ["f16", "bf16", "f64"] {
            assert_eq!(tensor(&file, key).values().unwrap(), counting(5));
        }
        assert_eq!(tensor(&file, "scalar").values().unwrap(), [7.0]);
        assert!(tensor(&file, "empty").values().unwrap().is_empty());
        let nested = file.get("nested").unwrap();
        let Some(Value::List(deep)) = nested.get("deep") else { panic!("{nested:?}") };
        assert_eq!(deep.len(), 6);
        let Some(Value::Dict(state)) = file.get("args") else { panic!() };
        assert_eq!(state[0].0, "lr");
    }
}

#[test]
fn a_pickled_module_names_what_is_not_allowed() {
    let error = torch_file::load(fixture("torch/module.pt")).unwrap_err().to_string();
    assert!(error.contains("torch.nn.modules.container.Sequential") && error.contains("state dict"), "{error}");
}
