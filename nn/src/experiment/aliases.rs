//! Other names of learning rules and their keys: those of earlier versions and of other libraries.

use unisono::Result;

use super::node::{Node, Value};

/// Names of rules, and their equivalents in the format.
pub(super) const TYPES: &[(&str, &str)] = &[("gradient_descent", "sgd"), ("nesterov_momentum", "nesterov")];

/// Keys of rules, and their equivalents in the format.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("rate", "lr"),
    ("learning_rate", "lr"),
    ("decay", "weight_decay"),
    ("coefficient", "momentum"),
    ("epsilon", "eps"),
];

/// The name of the format for a key of a rule.
pub(super) fn key(name: &str) -> &str {
    KEYS.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name)
}

/// Gives all rules in a tree, and their keys, the names of the format, so that files with different names can be merged.
pub(super) fn resolve(node: &mut Node) -> Result<()> {
    match &mut node.value {
        Value::List(items) => items.iter_mut().try_for_each(resolve),
        Value::Map(entries) => entries.iter_mut().try_for_each(|(key, entry)| match key.as_str() {
            "rule" => resolve_rule(entry),
            "settings" => Ok(()),
            _ => resolve(entry),
        }),
        _ => Ok(()),
    }
}

fn resolve_rule(rule: &mut Node) -> Result<()> {
    rename_type(rule);
    let Value::Map(entries) = &mut rule.value else { return Ok(()) };
    if let Some(at) = entries.iter().position(|(name, value)| name == "betas" && value.items().len() == 2) {
        let (_, betas) = entries.remove(at);
        let names = ["beta1".to_string(), "beta2".to_string()];
        entries.extend(names.into_iter().zip(betas.items().iter().cloned()));
    }
    for at in 0..entries.len() {
        if entries[at].0 == "type" {
            rename_type(&mut entries[at].1);
        }
        let (given, name) = (entries[at].0.clone(), key(&entries[at].0).to_string());
        if let Some((other, _)) = entries[..at].iter().find(|(other, _)| *other == name) {
            let received = format!("`{given}` besides `{other}`");
            let expected = format!("one value for `{name}` of a rule");
            return Err(entries[at].1.location.error("rule", expected, received, "leave one of them out"));
        }
        entries[at].0 = name;
    }
    Ok(())
}

fn rename_type(node: &mut Node) {
    if let Value::Text(word) = &mut node.value
        && let Some((_, name)) = TYPES.iter().find(|(alias, _)| *alias == word.as_str())
    {
        *word = name.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Experiment, yaml};
    use super::*;

    #[test]
    fn rules_have_the_names_of_the_format_afterwards() {
        let text = "{rule: {type: nesterov_momentum, rate: {type: step, rate: 1}, decay: 2, coefficient: 3}, model: {layers: \
                    [{rule: gradient_descent, epsilon: 4}, {settings: {rule: {rate: 5}}}, {rule: {betas: [6, 7], epsilon: 8}}]}}";
        let mut node = yaml::parse("x.yaml", text).expect("it is YAML");
        resolve(&mut node).expect("no key is there twice");
        let expected = "{rule: {type: nesterov, lr: {type: step, rate: 1}, weight_decay: 2, momentum: 3}, model: {layers: \
                        [{rule: sgd, epsilon: 4}, {settings: {rule: {rate: 5}}}, {rule: {eps: 8, beta1: 6, beta2: 7}}]}}";
        let expected = yaml::parse("x.yaml", expected).expect("it is YAML");
        assert_eq!(yaml::flow(&node), yaml::flow(&expected));
        for twice in ["{rule: {lr: 1, rate: 2}}", "{rule: {beta1: 0.5, betas: [0.9, 0.99]}}"] {
            let error = resolve(&mut yaml::parse("x.yaml", twice).expect("it is YAML")).expect_err(twice);
            assert!(error.to_string().contains("leave one of them out"), "{error}");
        }
    }

    #[test]
    fn changes_replace_a_key_under_any_of_its_names() {
        let text = "{epochs: 1, batch_size: 10, data: iris, rule: {type: momentum, rate: 0.5}, model: {type: network, cost: \
                    sum_of_squares, layers: [{type: fully_connected, outputs: 3}]}}";
        for change in ["rule.lr=0.25", "rule.rate=0.25", "rule={type: momentum, learning_rate: 0.25}"] {
            let experiment = Experiment::parse("x.yaml", text, &[change.into()]).expect(change);
            assert_eq!(experiment.layers[0].rule.lr.at(0), 0.25, "{change}");
        }
    }
}
