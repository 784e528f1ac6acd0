//! Files written for neon: their meaning, and which ones are rejected.

use unisono_nn::{
    Activation, Cost, Experiment, Initial, LayerKind, ModelKind, Precision, Schedule, Source, Trainer,
};

fn parse(text: &str) -> unisono::Result<Experiment> {
    Experiment::parse("neon.yaml", text, &[])
}

const OLD: &str = "
!obj:neon.experiments.fit_predict_err.FitPredictErrorExperiment {
  backend: &be !obj:neon.backends._numpy.Numpy64 { rng_seed: 7, seterr_handling: {all: 'warn'} },
  datasets: [
    !obj:neon.datasets.mnist.MNIST { backend: *be, repo_path: '/data', sample_pct: 0.5, serialized_path: 'x_{rank}.pkl' },
  ],
  model: !obj:neon.models.mlp.MLP {
    num_epochs: 3, batch_size: &bs 20, learning_rate: 0.1,
    momentum: { type: linear_monotone, initial_coef: 0.5, start_epoch: 1, saturate_epoch: 4, saturated_coef: 0.9 },
    cost: !obj:neon.transforms.cross_entropy.CrossEntropy {},
    layers: [
      !obj:neon.layers.Layer {
        name: hidden, batch_size: *bs, nin: 785, nout: 30,
        weight_init: { type: normal, loc: 0.0, scale: 0.01, bias_init: 0.3 },
        activation: !obj:neon.transforms.tanh.Tanh {},
      },
      !obj:neon.layers.LayerWithNoBias {
        name: out, nin: 30, nout: 10, learning_rate: 0.2, weight_init: { type: node_normalized, scale: 2.0 },
        activation: !obj:neon.transforms.softmax.Softmax {},
      },
    ],
  },
  logging: { level: 20 },
}
";

#[test]
fn the_2014_format_is_read() {
    let experiment = parse(OLD).expect("it is right");
    assert_eq!((experiment.seed, experiment.epochs, experiment.batch_size), (7, 3, 20));
    assert_eq!(
        (experiment.precision, experiment.sample, experiment.shuffle),
        (Precision::Double, 50.0, false)
    );
    assert_eq!(experiment.source, Source::Mnist { folder: Some("/data/MNIST".into()), download: false });
    let [hidden, out] = &experiment.layers[..] else { panic!("two layers") };
    assert_eq!((hidden.kind.clone(), hidden.bias), (LayerKind::FullyConnected { outputs: 30 }, Some(0.3)));
    assert_eq!(hidden.weights, Initial::Normal { mean: 0.0, deviation: 0.01 });
    let line = Schedule::Linear { initial: 0.5, start: 1, saturate: 4, saturated: 0.9 };
    assert_eq!(
        (hidden.rule.updater, &hidden.rule.momentum, &hidden.rule.lr),
        ("momentum", &line, &Schedule::Constant(0.1))
    );
    // Layers without a bias do not use momentum; cross-entropy after a softmax is a single cost.
    assert_eq!((out.rule.updater, out.bias), ("sgd", None));
    assert_eq!(
        (out.rule.lr.clone(), out.weights.clone()),
        (Schedule::Constant(0.2), Initial::NodeNormalized { scale: 2.0 })
    );
    assert_eq!((experiment.cost, out.activation), (Cost::SoftmaxCrossEntropy, Activation::Identity));
}

#[test]
fn the_2015_format_is_read() {
    let text = "
!obj:experiments.FitPredictErrorExperiment {
  dataset: !obj:datasets.UniformRandom { ntrain: 100, ntest: 20, nin: 12, nout: 4 },
  metrics: { train: [], test: [] },
  model: !obj:models.MLP {
    num_epochs: 2, batch_size: 10,
    layers: [
      &data !obj:layers.DataLayer { name: d0, nout: 12 },
      !obj:layers.FCLayer {
        name: h0, nout: 8, batch_norm: True,
        lrule_init: { type: gradient_descent_momentum_weight_decay, lr_params: {
          learning_rate: 0.1, weight_decay: 0.005, momentum_params: { type: constant, coef: 0.9 },
          schedule: { type: step, ratio: 0.1, step_epochs: 2 } } },
        weight_init: !obj:params.UniformValGen { low: -0.1, high: 0.2, bias_init: 0.5 },
        activation: !obj:transforms.RectLeaky { slope: 0.2 },
      },
      !obj:layers.DropOutLayer { name: drop, keep: 0.6 },
      !obj:layers.FCLayer {
        name: out, nout: 4, lrule_init: { type: adadelta, lr_params: { rho: 0.9, epsilon: 0.001 } },
        weight_init: !obj:params.GaussianValGen { loc: 0.0, scale: 0.1 },
        activation: !obj:transforms.Logistic {},
      },
      !obj:layers.CostLayer { name: cost, ref_layer: *data, cost: !obj:transforms.SumSquaredDiffs {} },
    ],
  },
}
";
    let experiment = parse(text).expect("it is right");
    let kinds: Vec<&LayerKind> = experiment.layers.iter().map(|layer| &layer.kind).collect();
    assert!(matches!(
        kinds[..],
        [
            LayerKind::FullyConnected { outputs: 8 },
            LayerKind::BatchNorm { .. },
            LayerKind::Dropout { keep: 0.6 },
            LayerKind::FullyConnected { outputs: 4 }
        ]
    ));
    let [hidden, norm, _, out] = &experiment.layers[..] else { panic!("four layers") };
    assert_eq!((hidden.activation, norm.activation), (Activation::Identity, Activation::Leaky(0.2)));
    assert_eq!((hidden.rule.weight_decay, hidden.bias, out.bias), (0.005, Some(0.5), None));
    assert_eq!(hidden.rule.lr, Schedule::Step { initial: 0.1, ratio: 0.1, epochs: 2 });
    assert_eq!((hidden.rule.updater, &hidden.rule.momentum), ("momentum", &Schedule::Constant(0.9)));
    assert_eq!(
        (out.rule.updater, out.rule.options.rho, out.rule.options.eps),
        ("adadelta", Some(0.9), Some(0.001))
    );
    assert_eq!((experiment.cost, experiment.model.clone()), (Cost::SumOfSquares, ModelKind::Network));
    // neon's defaults, which are not those of the format.
    let experiment = parse(&text.replace("rho: 0.9, epsilon: 0.001", "")).expect("it is right");
    let options = &experiment.layers[3].rule.options;
    assert_eq!((options.rho, options.eps), (Some(0.95), Some(1e-6)));
}

#[test]
fn keys_that_only_hold_anchors_are_accepted() {
    let text = "
!obj:experiments.FitPredictErrorExperiment {
  weight_init: &weights !obj:params.UniformValGen { low: -0.1, high: 0.1 },
  lrules: [&slow { type: gradient_descent, lr_params: { learning_rate: 0.05 } }],
  dataset: !obj:datasets.UniformRandom { ntrain: 100, ntest: 20, nin: 12, nout: 4 },
  model: !obj:models.MLP {
    num_epochs: 2, batch_size: 10,
    lrule: &fast { type: gradient_descent, lr_params: { learning_rate: 0.5 } },
    layers: [
      &data !obj:layers.ImageDataLayer { name: d0, nout: 12 },
      !obj:layers.FCLayer { name: h0, nout: 8, lrule_init: *slow, weight_init: *weights,
                            activation: !obj:transforms.Tanh {} },
      !obj:layers.FCLayer { name: out, nout: 4, lrule_init: *fast, weight_init: *weights,
                            activation: !obj:transforms.Logistic {} },
      !obj:layers.CostLayer { name: cost, ref_layer: *data, cost: !obj:transforms.CrossEntropy {} },
    ],
  },
}
";
    let experiment = parse(text).expect("it is right");
    let [hidden, out] = &experiment.layers[..] else { panic!("two layers") };
    assert_eq!(hidden.weights, Initial::Uniform { low: -0.1, high: 0.1 });
    assert_eq!((&hidden.rule.lr, &out.rule.lr), (&Schedule::Constant(0.05), &Schedule::Constant(0.5)));
}

#[test]
fn the_old_constant_momentum_reads_only_one_key() {
    let text = OLD.replace("type: linear_monotone, initial_coef: 0.5", "type: constant, initial_coef: 0.9");
    let experiment = parse(&text).expect("it is right");
    assert_eq!(experiment.layers[0].rule.momentum, Schedule::Constant(0.0));
}

#[test]
fn the_later_constant_momentum_reads_both_keys() {
    let rule =
        "gradient_descent_momentum, lr_params: { learning_rate: 0.1, momentum_params: { type: constant";
    let late = format!("nout: 30, lrule_init: {{ type: {rule}, initial_coef: 0.9 }} }} }},");
    let experiment = parse(&OLD.replace("nout: 30,", &late)).expect("it is right");
    assert_eq!(experiment.layers[0].rule.momentum, Schedule::Constant(0.9));
}

#[test]
fn num_test_sample_limits_the_test_samples() {
    let text = OLD.replace("repo_path: '/data', sample_pct: 0.5", "num_test_sample: 990");
    let experiment = parse(&text).expect("it is right");
    assert_eq!(experiment.test_samples, Some(990));
    let trainer: Trainer<f64> = Trainer::new(&experiment).expect("the sample is in the repository");
    assert_eq!((trainer.data().train.count, trainer.data().test.count), (3000, 990));
}

#[test]
fn unknown_keys_are_rejected_with_their_line() {
    for (part, wrong, words) in [
        ("mlp.MLP", "mlp.MPL", "did you mean `MLP`?"),
        ("mlp.MLP", "rbm.RBM", "one of MLP"),
        ("num_epochs", "num_epoch", "did you mean `num_epochs`?"),
        ("nin: 785, nout", "nin: 785, nuot", "did you mean `nout`?"),
        ("type: normal", "type: normale", "did you mean `normal`?"),
        ("!obj:neon.transforms.tanh.Tanh", "!obj:os.system", "one of Logistic"),
        ("learning_rate: 0.1", "cost_: 1", "known key"),
        ("mnist.MNIST", "sparsenet.SPARSENET", "one of MNIST"),
        ("type: normal, loc", "type: normal, lco", "did you mean `loc`?"),
        ("scale: 2.0", "high: 2.0", "its keys are scale"),
        ("saturated_coef", "saturate_coef", "did you mean"),
        ("tanh.Tanh {}", "tanh.Tanh { slope: 0.1 }", "known key"),
        ("CrossEntropy {}", "CrossEntropy { scala: 2 }", "known key"),
        ("sample_pct: 0.5", "sample_pct: some", "a number"),
        ("repo_path: '/data'", "repo_path: 5", "a folder"),
        (
            "mnist.MNIST { backend: *be, repo_path: '/data'",
            "cifar10.CIFAR10 { repo_path: null",
            "a key `repo_path`",
        ),
        ("backend: *be, repo_path", "dist_flag: perhaps, repo_path", "True or False"),
        ("sample_pct: 0.5", "validation_pct: 10", "no `validation_pct`"),
        ("num_epochs: 3", "deserialized_path: 'model.pkl', num_epochs: 3", "initial_weights"),
    ] {
        let text = OLD.replace(part, wrong);
        let error = parse(&text).expect_err(wrong).to_string();
        let line = 1 + text.lines().position(|line| line.contains(wrong)).expect("it is there");
        assert!(error.contains(&format!("neon.yaml:{line}")) && error.contains(words), "{wrong}: {error}");
    }
}

const LATE: &str = "
!obj:experiments.FitPredictErrorExperiment {
  dataset: !obj:datasets.UniformRandom { ntrain: 100, ntest: 20, nin: 12, nout: 4 },
  model: !obj:models.MLP {
    num_epochs: 2, batch_size: 10,
    layers: [
      !obj:layers.FCLayer {
        name: h.0, nout: 8, batch_norm: False,
        lrule_init: { type: gradient_descent_momentum_weight_decay, lr_params: {
          learning_rate: 0.1, weight_decay: 0.005, momentum_params: { type: constant, coef: 0.9 },
          schedule: { type: step, ratio: 0.1, step_epochs: 2 } } },
        weight_init: !obj:params.UniformValGen { low: -0.1, high: 0.2 },
        activation: !obj:transforms.RectLeaky { slope: 0.2 },
      },
      !obj:layers.FCLayer {
        name: out, nout: 4, lrule_init: { type: adadelta, lr_params: { rho: 0.9, epsilon: 0.001 } },
        weight_init: !obj:params.GaussianValGen { loc: 0.0, scale: 0.1 },
      },
      !obj:layers.CostLayer { name: cost, cost: !obj:transforms.SumSquaredDiffs {} },
    ],
  },
}
";

#[test]
fn unknown_keys_of_inner_maps_are_rejected_with_their_line() {
    parse(LATE).expect("it is right");
    for (part, wrong, words) in [
        ("high: 0.2", "hihg: 0.2", "did you mean `high`?"),
        ("weight_decay: 0.005", "weight_deacy: 0.005", "did you mean `weight_decay`?"),
        ("momentum_params:", "momentum_parms:", "did you mean `momentum_params`?"),
        ("coef: 0.9", "ceof: 0.9", "did you mean `coef`?"),
        ("step_epochs: 2", "step_epoch: 2", "did you mean `step_epochs`?"),
        ("rho: 0.9", "roh: 0.9", "did you mean `rho`?"),
        ("{ slope: 0.2 }", "{ slop: 0.2 }", "did you mean `slope`?"),
        ("{ slope: 0.2 }", "{ slope: steep }", "a number"),
        ("batch_norm: False", "batch_norm: perhaps", "True or False"),
        ("batch_norm: False", "batch_norm: 2", "True or False"),
    ] {
        let text = LATE.replace(part, wrong);
        let error = parse(&text).expect_err(wrong).to_string();
        let line = 1 + text.lines().position(|line| line.contains(wrong)).expect("it is there");
        assert!(error.contains(&format!("neon.yaml:{line}")) && error.contains(words), "{wrong}: {error}");
    }
}

#[test]
fn booleans_are_all_of_pythons_spellings() {
    let words = [
        (true, ["True", "true", "TRUE", "yes", "Yes", "on", "ON", "1", "'True'"]),
        (false, ["False", "false", "FALSE", "no", "No", "off", "0", "null", "'False'"]),
    ];
    for (meant, word) in words.into_iter().flat_map(|(meant, words)| words.map(|word| (meant, word))) {
        let late = parse(&LATE.replace("batch_norm: False", &format!("batch_norm: {word}"))).expect(word);
        let normalizes = late.layers.iter().any(|layer| matches!(layer.kind, LayerKind::BatchNorm { .. }));
        assert_eq!(normalizes, meant, "batch_norm: {word}");
        assert_eq!(late.layers[0].name, "h_0");
        for (part, place) in [("backend: *be, repo_path", "repo_path"), ("logging", "logging")] {
            let spread = parse(&OLD.replace(part, &format!("dist_flag: {word}, {place}"))).expect(word);
            assert_eq!(spread.resolved.get("distributed").is_some(), meant, "dist_flag: {word}");
        }
    }
}
