//! What a request resolves to, and what is refused.

use super::settings::{Settings, TuneRequest};
use flatclip::settings::parse_settings;

fn request(method: &str, sets: &[&str]) -> TuneRequest {
    let overrides = vec![parse_settings(sets).unwrap()];
    TuneRequest { method: method.into(), overrides, ..TuneRequest::default() }
}

#[test]
fn presets_and_single_keys_override_defaults_in_that_order() {
    let settings = Settings::resolve(&request("sapt-xd", &["sapt.rho=1", "train.batch=8", "sapt.words=an image"]));
    let settings = settings.unwrap();
    assert_eq!((settings.recipe.epochs, settings.recipe.batch), (5, 8));
    assert_eq!(settings.options["radius"].as_float(), Some(1.0));
    assert_eq!(settings.options["words"].as_str(), Some("an image"));
    assert_eq!(settings.few_shot.shots, 16);
    let text = settings.to_toml().unwrap();
    let table: toml::Table = text.parse().unwrap();
    assert!(table.contains_key("sapt") && table.contains_key("train"), "{text}");
}

#[test]
fn a_small_logit_scale_raises_the_rate_unless_it_was_chosen() {
    let suited = |sets: &[&str], scale| {
        let mut settings = Settings::resolve(&request("sapt", sets)).unwrap();
        settings.suit(scale);
        (settings.recipe.lr, settings.rate_follows)
    };
    assert_eq!(suited(&[], 100.0), (0.002, None));
    assert_eq!(suited(&[], 50.0), (0.008, Some(50.0)));
    assert_eq!(suited(&[], 15.11), (0.01, Some(15.11)));
    assert_eq!(suited(&["train.rate_limit=100"], 15.11), (0.0876, Some(15.11)));
    assert_eq!(suited(&["train.lr=0.01"], 15.11), (0.01, None));
}

#[test]
fn wrong_keys_are_named() {
    let fault = |method: &str, set: &str| Settings::resolve(&request(method, &[set])).unwrap_err().to_string();
    assert!(fault("sapt", "sapt.rhoo=1").contains("sapt.rhoo"));
    assert!(fault("sapt", "coop.words=x").contains("no such table for sapt"));
    assert!(fault("sapt", "train.epochs=many").contains("train.epochs"));
    assert!(fault("sapt", "views.scale=[0.0, 1.0]").contains("views.scale"));
    assert!(fault("sapt", "epochs=3").contains("epochs"));
    let search = TuneRequest { search: true, ..request("coop", &[]) };
    assert!(Settings::resolve(&search).unwrap_err().to_string().contains("only sapt"));
    assert!(Settings::resolve(&request("soap", &[])).unwrap_err().to_string().contains("sapt-dg"));
}

#[test]
fn held_out_images_are_requested_where_something_is_chosen_on_them() {
    let held_out = |method: &str| Settings::resolve(&request(method, &[])).unwrap().few_shot.held_out;
    assert_eq!([held_out("sapt"), held_out("tip-adapter")], [0, 4]);
    let search = TuneRequest { search: true, ..request("sapt", &[]) };
    assert_eq!(Settings::resolve(&search).unwrap().few_shot.held_out, 4);
}

#[test]
fn settings_that_would_train_something_else_are_refused() {
    let fault = |method: &str, sets: &[&str]| Settings::resolve(&request(method, sets)).unwrap_err().to_string();
    let text = fault("coop", &["train.average=swa", "train.swa_start=1.5"]);
    assert!(text.contains("train.swa_start") && text.contains("1.5"), "{text}");
    let text = fault("sapt", &["train.epochs=5", "sapt.start_epoch=5"]);
    assert!(text.contains("sapt.start_epoch") && text.contains('5'), "{text}");
    Settings::resolve(&request("sapt", &["train.epochs=5", "sapt.start_epoch=4"])).unwrap();
}

#[test]
fn numbers_without_a_digit_before_or_after_the_point_are_numbers() {
    let settings = Settings::resolve(&request("sapt", &["sapt.lambda=.5", "sapt.rho=1."])).unwrap();
    assert_eq!(settings.options["weight"].as_float(), Some(0.5));
    assert_eq!(settings.options["radius"].as_float(), Some(1.0));
}

#[test]
fn the_few_shot_preset_trains_as_long_as_coop_did_for_these_shots() {
    let epochs = |shots| {
        let request = TuneRequest { shots, ..request("coop-few-shot", &[]) };
        Settings::resolve(&request).unwrap().recipe.epochs
    };
    assert_eq!([Some(1), Some(2), Some(4), Some(8), Some(16), None].map(epochs), [50, 100, 100, 200, 200, 200]);
    let chosen = TuneRequest { shots: Some(1), ..request("coop-few-shot", &["train.epochs=7"]) };
    assert_eq!(Settings::resolve(&chosen).unwrap().recipe.epochs, 7);
}

#[test]
fn the_imagenet_presets_of_tip_adapter_classify_with_the_seven_templates() {
    for preset in ["tip-in16", "tipf-in16"] {
        let options = Settings::resolve(&request(preset, &[])).unwrap().options;
        let templates: Vec<&str> =
            options["templates"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
        assert_eq!(templates, flatclip::text::imagenet::TEMPLATES_7, "{preset}");
    }
}
