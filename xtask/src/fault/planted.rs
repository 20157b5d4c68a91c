//! Faults planted on purpose: a harness that does not find these finds nothing. Run by `xtask/tests/fault.rs`.

use super::{Suite, Test};
use anyhow::{Result, ensure};

const WHAT: &str = "a fault planted in the harness";
const RULE: &str = "is found";

pub(super) const TESTS: &[Test] = &[
    plant("planted-none", |trial| {
        for number in 0..trial.count(10) {
            trial.case(&number.to_string(), || Ok(()));
        }
        trial.add("counted", 2);
        trial.most("largest", 7);
        trial.note("said", "once");
        Ok(())
    }),
    plant("planted-wrong", |trial| {
        for number in 0..4 {
            trial.case(&format!("number {number}"), || -> Result<()> {
                ensure!(number != 2, "another result, silently");
                Ok(())
            });
        }
        Ok(())
    }),
    plant("planted-panic", |trial| {
        trial.case("before", || Ok(()));
        trial.case("index", || {
            let empty: Vec<u8> = Vec::new();
            let place = std::hint::black_box(3);
            ensure!(empty[place] == 0, "not reached");
            Ok(())
        });
        trial.case("after", || Ok(()));
        Ok(())
    }),
    plant("planted-abort", |trial| {
        trial.case("before", || Ok(()));
        trial.case("abort", || std::process::abort());
        Ok(())
    }),
    plant("planted-bomb", |trial| {
        trial.case("bomb", || {
            let bytes = vec![1u8; std::hint::black_box(64 << 30)];
            ensure!(bytes[bytes.len() / 2] == 1, "not reached");
            Ok(())
        });
        Ok(())
    }),
    plant("planted-hang", |trial| {
        trial.case("sleep", || {
            std::thread::sleep(std::time::Duration::from_secs(60));
            Ok(())
        });
        Ok(())
    }),
    plant("planted-nothing", |_| Ok(())),
    plant("planted-skip", |trial| {
        trial.skip("not on this machine");
        Ok(())
    }),
];

const fn plant(name: &'static str, run: fn(&mut super::Trial) -> Result<()>) -> Test {
    Test { name, suite: Suite::Planted, what: WHAT, rule: RULE, patience: 5, run }
}
