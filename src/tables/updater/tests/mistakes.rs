//! Names, types and options that are rejected, and the advice in the errors.

use super::*;
use crate::Kind;

#[test]
fn wrong_names_and_types_are_rejected_with_advice() {
    let error = UpdaterChoice::named("momentun").unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let text = error.to_string();
    assert!(text.contains("add, sgd, momentum") && text.contains("did you mean `momentum`?"), "{text}");
    let text = UpdaterChoice::named("gradient boosting").unwrap_err().to_string();
    assert!(text.contains("write your own"), "{text}");

    for name in UpdaterChoice::names() {
        let choice = UpdaterChoice::named(name).unwrap();
        for dtype in DType::ALL {
            let whole = matches!(dtype, DType::I32 | DType::I64);
            match choice.rule(dtype) {
                Ok(rule) => {
                    assert_eq!((rule.name(), rule.dtype()), (name, dtype));
                    assert!(dtype.is_float() || (whole && ["add", "sgd"].contains(&name)));
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Usage);
                    assert!(error.to_string().contains(&format!("`{name}`, received {dtype}")), "{error}");
                    assert_eq!(whole, error.to_string().contains("or the updater `add` or `sgd`"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_forgotten_letter_is_likelier_than_a_wrong_one() {
    let text = UpdaterChoice::named("adm").unwrap_err().to_string();
    assert!(text.contains("did you mean `adam`?"), "{text}");
}

#[test]
fn options_that_a_rule_does_not_use_are_rejected() {
    let rejection = |updater: &str, option: &str| {
        let rule = UpdaterChoice::named(updater).unwrap().rule(DType::F32).unwrap();
        rule.check_used("w", &options(&[(option, 0.5)])).map_err(|error| error.to_string())
    };
    let text = rejection("sgd", "momentum").unwrap_err();
    assert!(
        text.contains("no options for the updater `sgd` of table \"w\", received momentum=0.5"),
        "{text}"
    );
    assert!(
        text.contains("an updater that uses it: momentum, nesterov, dcasgda, multiverso_momentum"),
        "{text}"
    );
    let text = rejection("adam", "rho").unwrap_err();
    assert!(text.contains("`adam` of table \"w\": lr, beta1, beta2, eps"), "{text}");
    for name in UpdaterChoice::names() {
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap();
        let used = rule.uses().unwrap();
        for option in AddOptions::NAMES {
            assert_eq!(rejection(name, option).is_ok(), used.contains(option), "{name}, {option}");
        }
        assert!(rule.check_used("w", &rule.defaults()).is_ok(), "{name} uses what it has defaults for");
    }
    let rule = UpdaterChoice::named("adam").unwrap().rule(DType::F32).unwrap();
    let text = rule.check_name("w", "beta3").unwrap_err().to_string();
    assert!(text.contains("\"beta3\"; did you mean `beta1`?"), "{text}");
    rule.check_name("w", "learning_rate").unwrap();
    let rule = UpdaterChoice::default().rule(DType::F32).unwrap();
    let text = rule.check_name("w", "learning_rat").unwrap_err().to_string();
    assert!(text.contains("did you mean `learning_rate`?"), "{text}");
}

#[test]
fn options_with_which_a_rule_cannot_work_are_rejected() {
    for (name, option, value) in [
        ("momentum", "momentum", 1.0),
        ("nesterov", "momentum", -0.1),
        ("adagrad", "lr", 0.0),
        ("adagrad", "eps", 1e-60),
        ("adagrad", "lr_decay", -0.1),
        ("adagrad", "initial_accumulator_value", -1.0),
        ("multiverso_adagrad", "rho", 0.0),
        ("multiverso_momentum", "momentum", 1.0),
        ("rmsprop", "alpha", 1.5),
        ("adadelta", "rho", 1.0),
        ("adamw", "weight_decay", -0.1),
        ("adamax", "eps", 0.0),
        ("adam", "beta2", 1.0 - 1e-12),
        ("adam", "lr", -1.0),
        ("lion", "beta1", 1.0),
        ("lion", "weight_decay", -0.1),
        ("ftrl", "alpha", 0.0),
        ("ftrl", "lambda1", -5.0),
        ("dcasgd", "lr", 0.0),
        ("dcasgda", "lambda", -0.1),
    ] {
        let rule = UpdaterChoice::named(name).unwrap().rule(DType::F32).unwrap();
        let text = rule.options(&options(&[(option, value)])).unwrap_err().to_string();
        assert!(text.contains(&format!("as {option} of the updater `{name}`")), "{text}");
        assert_eq!(rule.options(&AddOptions::default()).unwrap(), rule.defaults());
    }
    let rule = UpdaterChoice::default().rule(DType::F32).unwrap();
    assert!(rule.options(&AddOptions { rho: Some(f64::NAN), ..AddOptions::default() }).is_err());
}
