//! The format of experiment files: every key, with its type, its default and its purpose.

use super::describe::Presence::{Default, Optional, Required};
use super::describe::{Field, MapSchema, Presence, ValueType};

const fn field(name: &'static str, kind: ValueType, need: Presence, about: &'static str) -> Field {
    Field { name, kind, need, about }
}

/// The top level of a file.
pub(super) static EXPERIMENT: MapSchema = MapSchema {
    name: "",
    about: "an experiment",
    fields: &[&[
        field("name", ValueType::Text, Optional, "the name of run folders; by default the name of the file"),
        field("seed", ValueType::Seed, Default("0"), "the seed of all random numbers"),
        field(
            "precision",
            ValueType::Choice(&["f32", "f64"]),
            Default("f32"),
            "the floating-point type of all layers",
        ),
        field("threads", ValueType::Whole(1), Default("1"), "threads per process"),
        field(
            "deterministic",
            ValueType::Flag,
            Optional,
            "whether all results have the same bits on any number of processes; they have without this key, unless workers share a \
             table or a layer is a program's own",
        ),
        field("epochs", ValueType::Whole(0), Required, "passes over all training samples"),
        field("batch_size", ValueType::Whole(1), Required, "samples per update"),
        field("data", ValueType::OneOf(DATA), Required, "the data set"),
        field("model", ValueType::OneOf(MODELS), Required, "the model"),
        field(
            "rule",
            ValueType::OneOf(RULES),
            Default("gradient_descent"),
            "the default learning rule of layers",
        ),
        field(
            "weights",
            ValueType::OneOf(WEIGHTS),
            Default("auto_uniform"),
            "the default initial weights of layers",
        ),
        field(
            "initial_weights",
            ValueType::Text,
            Optional,
            "a .safetensors or .npz file with weights named layer/weights",
        ),
        field(
            "distributed",
            ValueType::OneOf(SPREADS),
            Optional,
            "how training is distributed over processes",
        ),
        field("test_every", ValueType::Whole(1), Default("1"), "epochs between tests"),
        field("save_every", ValueType::Whole(1), Default("1"), "epochs between checkpoints"),
        field("keep", ValueType::Whole(1), Default("2"), "number of checkpoints to keep"),
    ]],
};

const GRID: &[Field] = &[field(
    "grid",
    ValueType::Text,
    Optional,
    "processes along each axis, such as data=2,h=2,w=2; by default as even as possible",
)];

pub(super) static SPREADS: &[&MapSchema] = &[
    &MapSchema { name: "data", about: "each process has some samples of a batch", fields: &[GRID] },
    &MapSchema {
        name: "halo",
        about: "each process has some rows and columns of every sample",
        fields: &[GRID],
    },
    &MapSchema { name: "vector", about: "each process has some inputs of every layer", fields: &[GRID] },
    &MapSchema {
        name: "table",
        about: "each process has some samples of a batch; weights are shared through a table",
        fields: &[
            GRID,
            &[field(
                "consistency",
                ValueType::Text,
                Default("async"),
                "how far processes may drift apart: async, ssp:3 (three batches), bsp (not at all)",
            )],
        ],
    },
];

const SAMPLES: &[Field] = &[
    field("sample", ValueType::Number, Default("100"), "percentage of samples to use, chosen by the seed"),
    field("shuffle", ValueType::Flag, Default("true"), "whether to shuffle the samples in each epoch"),
    field("test_samples", ValueType::Whole(0), Optional, "number of test samples to use, from the first"),
];

const DOWNLOAD: &[Field] = &[field(
    "download",
    ValueType::Flag,
    Default("false"),
    "whether to download missing files; into the user's cache if there is no folder",
)];

pub(super) static DATA: &[&MapSchema] = &[
    &MapSchema {
        name: "mnist",
        about: "handwritten digits, 28 × 28",
        fields: &[
            &[field(
                "folder",
                ValueType::Text,
                Optional,
                "the folder of the four idx files; by default a small built-in sample",
            )],
            DOWNLOAD,
            SAMPLES,
        ],
    },
    &MapSchema {
        name: "cifar10",
        about: "colour pictures of ten classes, 3 × 32 × 32",
        fields: &[
            &[field("folder", ValueType::Text, Optional, "the folder of the binary batches")],
            DOWNLOAD,
            SAMPLES,
        ],
    },
    &MapSchema { name: "iris", about: "Fisher's 150 flowers", fields: &[SAMPLES] },
    &MapSchema {
        name: "uniform_random",
        about: "random numbers with random classes",
        fields: &[
            &[
                field("train", ValueType::Whole(1), Required, "number of training samples"),
                field("test", ValueType::Whole(0), Required, "number of test samples"),
                field("shape", ValueType::Sizes, Required, "the shape of a sample"),
                field("classes", ValueType::Whole(1), Required, "number of classes"),
            ],
            SAMPLES,
        ],
    },
    &MapSchema { name: "toy_images", about: "circles and ellipses, 3 × 32 × 32", fields: &[SAMPLES] },
    &MapSchema {
        name: "images",
        about: "a folder with train/CLASS/*.png (or .pgm, .ppm), and optionally test",
        fields: &[&[field("folder", ValueType::Text, Required, "the folder")], SAMPLES],
    },
    &MapSchema {
        name: "arrays",
        about: ".npy files with samples along the first axis",
        fields: &[
            &[
                field("inputs", ValueType::Text, Required, "training inputs"),
                field("targets", ValueType::Text, Optional, "their classes or values"),
                field("test_inputs", ValueType::Text, Optional, "test inputs"),
                field("test_targets", ValueType::Text, Optional, "their classes or values"),
            ],
            SAMPLES,
        ],
    },
    &MapSchema { name: "own", about: "a custom data set of the program", fields: &[OWN, SAMPLES] },
];

const OWN: &[Field] = &[
    field("kind", ValueType::Text, Required, "the name under which the program registered it"),
    field("settings", ValueType::Any, Optional, "its settings"),
];

static ANY_LAYER: ValueType = ValueType::OneOf(LAYERS);

const LAYER_LIST: &[Field] = &[
    field(
        "cost",
        ValueType::Choice(&["cross_entropy", "softmax_cross_entropy", "sum_of_squares"]),
        Required,
        "the cost that training minimises",
    ),
    field("layers", ValueType::Many(&ANY_LAYER), Required, "the layers, from input to output"),
];

pub(super) static MODELS: &[&MapSchema] = &[
    &MapSchema { name: "network", about: "layers trained to predict targets", fields: &[LAYER_LIST] },
    &MapSchema {
        name: "autoencoder",
        about: "layers trained to reconstruct their input",
        fields: &[LAYER_LIST],
    },
    &MapSchema {
        name: "sparse_autoencoder",
        about: "groups of local filtering, L2 pooling and contrast, each pretrained; then a network",
        fields: &[
            LAYER_LIST,
            &[
                field("pretrain_epochs", ValueType::Whole(0), Required, "pretraining epochs per group"),
                field("pretrain_rate", ValueType::NotNegative, Required, "the learning rate of pretraining"),
                field(
                    "last_layer_epochs",
                    ValueType::Whole(0),
                    Default("0"),
                    "initial epochs that train only the last layer",
                ),
                field(
                    "sparsity",
                    ValueType::NotNegative,
                    Required,
                    "the cost per pooled unit in pretraining",
                ),
                field(
                    "tied_weights",
                    ValueType::Flag,
                    Default("true"),
                    "whether the same filters encode and reconstruct",
                ),
                field(
                    "spot_check",
                    ValueType::Flag,
                    Default("false"),
                    "whether to find the unit that best detects each class: spot_check.csv",
                ),
                field(
                    "visualize",
                    ValueType::Flag,
                    Default("false"),
                    "whether to draw the inputs to which these units respond most: stimuli.png",
                ),
            ],
        ],
    },
];

const NAME: &[Field] = &[field("name", ValueType::Text, Optional, "its name in checkpoints and messages")];
const LEARNS: &[Field] = &[
    field("weights", ValueType::OneOf(WEIGHTS), Optional, "its initial weights"),
    field("rule", ValueType::OneOf(RULES), Optional, "its learning rule"),
];
const BIAS: &[Field] = &[
    field("bias", ValueType::Flag, Default("true"), "whether each output map has a bias"),
    field("first_bias", ValueType::Number, Default("0"), "the initial value of biases"),
];
pub(super) const FUNCTIONS: ValueType =
    ValueType::Choice(&["identity", "logistic", "tanh", "rectified", "leaky", "softplus", "softmax"]);
const ACTIVATION: &[Field] = &[
    field("activation", FUNCTIONS, Default("identity"), "the activation function"),
    field("slope", ValueType::Number, Default("0.01"), "the slope of `leaky` below zero"),
];
const WINDOW: &[Field] = &[
    field("kernel", ValueType::Pair(1), Required, "rows and columns of the window"),
    field("stride", ValueType::Pair(1), Default("1"), "the step of the window"),
    field("padding", ValueType::Pair(0), Default("0"), "zero padding beyond each border"),
];
const MAPS: &[Field] = &[field("maps", ValueType::Whole(1), Required, "number of output maps")];

pub(super) static LAYERS: &[&MapSchema] = &[
    &MapSchema {
        name: "fully_connected",
        about: "every output depends on all inputs",
        fields: &[
            NAME,
            &[field("outputs", ValueType::Whole(1), Required, "number of outputs")],
            BIAS,
            ACTIVATION,
            LEARNS,
        ],
    },
    &MapSchema {
        name: "convolution",
        about: "the same filters at every position",
        fields: &[NAME, MAPS, WINDOW, BIAS, ACTIVATION, LEARNS],
    },
    &MapSchema {
        name: "local",
        about: "separate filters at every position",
        fields: &[
            NAME,
            MAPS,
            WINDOW,
            &[field(
                "unit_rows",
                ValueType::Flag,
                Default("true"),
                "whether filters are normalised to length one",
            )],
            ACTIVATION,
            LEARNS,
        ],
    },
    &MapSchema {
        name: "pooling",
        about: "one value per window of each map",
        fields: &[
            NAME,
            &[
                field(
                    "pool",
                    ValueType::Choice(&["max", "average", "l2"]),
                    Default("max"),
                    "how a window is reduced",
                ),
                field("kernel", ValueType::Pair(1), Required, "rows and columns of the window"),
                field(
                    "stride",
                    ValueType::Pair(1),
                    Optional,
                    "the step of the window; by default its own size",
                ),
                field("padding", ValueType::Pair(0), Default("0"), "padding beyond each border"),
            ],
        ],
    },
    &MapSchema {
        name: "contrast",
        about: "local contrast normalisation",
        fields: &[NAME, &[field("kernel", ValueType::Pair(1), Required, "odd sides of the window")]],
    },
    &MapSchema {
        name: "response",
        about: "cross-map response normalisation: x / (1 + alpha·Σx²)^beta",
        fields: &[
            NAME,
            &[
                field("size", ValueType::Whole(1), Default("5"), "number of neighbouring maps"),
                field("alpha", ValueType::Number, Default("0.0001"), "the strength"),
                field("beta", ValueType::Number, Default("0.75"), "the exponent"),
            ],
        ],
    },
    &MapSchema {
        name: "dropout",
        about: "zeroes values at random during training",
        fields: &[
            NAME,
            &[field("keep", ValueType::Number, Default("0.5"), "the probability to keep a value")],
        ],
    },
    &MapSchema {
        name: "batch_norm",
        about: "normalises each map to mean 0 and deviation 1 over a batch, then applies a learned scale and shift",
        fields: &[
            NAME,
            &[
                field("kept", ValueType::Number, Default("0.9"), "the decay of running averages per batch"),
                field("epsilon", ValueType::NotNegative, Default("0.001"), "added to the variance"),
                field("rule", ValueType::OneOf(RULES), Optional, "its learning rule"),
            ],
            ACTIVATION,
        ],
    },
    &MapSchema {
        name: "activation",
        about: "an element-wise function",
        fields: &[
            NAME,
            &[
                field("function", FUNCTIONS, Required, "the activation function"),
                field("slope", ValueType::Number, Default("0.01"), "the slope of `leaky` below zero"),
            ],
        ],
    },
    &MapSchema {
        name: "own",
        about: "a custom layer of the program",
        fields: &[NAME, OWN, ACTIVATION, LEARNS],
    },
];

const STEP: &MapSchema = &MapSchema {
    name: "step",
    about: "multiplied by a ratio every few epochs",
    fields: &[&[
        field("initial", ValueType::NotNegative, Required, "the initial value"),
        field("ratio", ValueType::NotNegative, Required, "the factor"),
        field("epochs", ValueType::Whole(1), Required, "the number of epochs between two steps"),
    ]],
};
const LINEAR: &MapSchema = &MapSchema {
    name: "linear",
    about: "linear between two epochs",
    fields: &[&[
        field("initial", ValueType::NotNegative, Required, "the initial value"),
        field("start", ValueType::Whole(0), Default("0"), "the last epoch with the initial value"),
        field("saturate", ValueType::Whole(0), Required, "the first epoch with the final value"),
        field("saturated", ValueType::NotNegative, Required, "the final value"),
    ]],
};
pub(super) static SCHEDULES: &[&MapSchema] = &[STEP, LINEAR];
const SCHEDULE: ValueType = ValueType::NumberOr(SCHEDULES);
const DECAY: Field = field(
    "decay",
    ValueType::NotNegative,
    Default("0"),
    "weight decay: adds this times the weight to its gradient",
);
const RATE: Field = field("rate", SCHEDULE, Default("0.01"), "the learning rate, or a schedule");

pub(super) static RULES: &[&MapSchema] = &[
    &MapSchema { name: "gradient_descent", about: "w ← w − rate·g", fields: &[&[RATE, DECAY]] },
    &MapSchema {
        name: "momentum",
        about: "v ← m·v − rate·g, w ← w + v",
        fields: &[&[RATE, DECAY, field("coefficient", SCHEDULE, Default("0.9"), "m, or a schedule")]],
    },
    &MapSchema {
        name: "nesterov",
        about: "momentum with the gradient at the look-ahead position",
        fields: &[&[RATE, DECAY, field("coefficient", SCHEDULE, Default("0.9"), "m, or a schedule")]],
    },
    &MapSchema {
        name: "adadelta",
        about: "steps scaled to the size of recent steps",
        fields: &[&[
            field("rate", SCHEDULE, Default("1"), "multiplies each step"),
            DECAY,
            field("rho", ValueType::BelowOne, Default("0.95"), "the decay of running averages"),
            field("epsilon", ValueType::NotNegative, Default("1e-6"), "keeps divisions finite"),
        ]],
    },
    &MapSchema {
        name: "adagrad",
        about: "rates that decrease with the accumulated squared gradients",
        fields: &[&[
            RATE,
            DECAY,
            field("epsilon", ValueType::NotNegative, Default("1e-8"), "keeps divisions finite"),
        ]],
    },
    &MapSchema {
        name: "adam",
        about: "running averages of the gradient and its square",
        fields: &[&[
            field("rate", SCHEDULE, Default("0.001"), "the learning rate, or a schedule"),
            DECAY,
            field("beta1", ValueType::BelowOne, Default("0.9"), "the decay of the average gradient"),
            field("beta2", ValueType::BelowOne, Default("0.999"), "the decay of the average square"),
            field("epsilon", ValueType::NotNegative, Default("1e-8"), "keeps divisions finite"),
        ]],
    },
];

pub(super) static WEIGHTS: &[&MapSchema] = &[
    &MapSchema {
        name: "constant",
        about: "all the same",
        fields: &[&[field("value", ValueType::Number, Default("0"), "the value")]],
    },
    &MapSchema {
        name: "uniform",
        about: "uniform between two bounds",
        fields: &[&[
            field("low", ValueType::Number, Required, "the lower bound"),
            field("high", ValueType::Number, Required, "the upper bound"),
        ]],
    },
    &MapSchema {
        name: "normal",
        about: "a Gaussian",
        fields: &[&[
            field("mean", ValueType::Number, Default("0"), "its mean"),
            field("deviation", ValueType::NotNegative, Default("1"), "its standard deviation"),
        ]],
    },
    &MapSchema { name: "auto_uniform", about: "uniform between ∓1/√inputs", fields: &[] },
    &MapSchema {
        name: "node_normalized",
        about: "uniform between ∓scale·√(6 / (inputs + outputs))",
        fields: &[&[field("scale", ValueType::Number, Default("1"), "multiplies the bound")]],
    },
    &MapSchema {
        name: "orthogonal",
        about: "orthogonal rows or columns",
        fields: &[&[field("scale", ValueType::Number, Default("1"), "their length")]],
    },
    &MapSchema {
        name: "sparse_eigen",
        about: "a few normal weights in each row, scaled to a spectral radius",
        fields: &[&[
            field("connections", ValueType::Whole(1), Default("15"), "nonzero weights per row"),
            field("radius", ValueType::Number, Default("1.2"), "the largest absolute eigenvalue"),
        ]],
    },
];
