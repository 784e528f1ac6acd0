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
        field(
            "name",
            ValueType::Text,
            Optional,
            "what run folders are called; the name of the file without it",
        ),
        field("seed", ValueType::Seed, Default("0"), "where all random numbers come from"),
        field(
            "precision",
            ValueType::Choice(&["f32", "f64"]),
            Default("f32"),
            "the numbers that layers compute in",
        ),
        field("threads", ValueType::Whole(1), Default("1"), "threads that a process computes with"),
        field(
            "deterministic",
            ValueType::Flag,
            Optional,
            "whether all results have the same bits on any number of processes; they have without this key, unless workers share a \
             table or a layer is a program's own",
        ),
        field("epochs", ValueType::Whole(0), Required, "how often the model sees all samples"),
        field("batch_size", ValueType::Whole(1), Required, "samples between two updates"),
        field("data", ValueType::OneOf(DATA), Required, "the data set"),
        field("model", ValueType::OneOf(MODELS), Required, "what learns"),
        field(
            "rule",
            ValueType::OneOf(RULES),
            Default("gradient_descent"),
            "the learning rule of layers without their own",
        ),
        field(
            "weights",
            ValueType::OneOf(WEIGHTS),
            Default("auto_uniform"),
            "the first weights of layers without their own",
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
            "how the model is spread over many processes",
        ),
        field("test_every", ValueType::Whole(1), Default("1"), "epochs between two tests"),
        field("save_every", ValueType::Whole(1), Default("1"), "epochs between two checkpoints"),
        field("keep", ValueType::Whole(1), Default("2"), "how many checkpoints stay"),
    ]],
};

const GRID: &[Field] = &[field(
    "grid",
    ValueType::Text,
    Optional,
    "how many processes along each axis, such as data=2,h=2,w=2; as even as possible without it",
)];

pub(super) static SPREADS: &[&MapSchema] = &[
    &MapSchema { name: "data", about: "each process has some samples of a batch", fields: &[GRID] },
    &MapSchema {
        name: "halo",
        about: "processes have parts of the rows and columns of each sample",
        fields: &[GRID],
    },
    &MapSchema { name: "vector", about: "processes have parts of the inputs of each layer", fields: &[GRID] },
    &MapSchema {
        name: "table",
        about: "each process has some samples of a batch, and shares weights through a table",
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
    field("sample", ValueType::Number, Default("100"), "percent of the samples, chosen by the seed"),
    field("shuffle", ValueType::Flag, Default("true"), "whether each epoch has an order of its own"),
    field(
        "test_samples",
        ValueType::Whole(0),
        Optional,
        "how many of the test samples are used, the first ones",
    ),
];

const DOWNLOAD: &[Field] = &[field(
    "download",
    ValueType::Flag,
    Default("false"),
    "whether what the folder lacks is downloaded; into the user's cache without a folder",
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
                "where the four idx files are; a small sample without it",
            )],
            DOWNLOAD,
            SAMPLES,
        ],
    },
    &MapSchema {
        name: "cifar10",
        about: "colour pictures of ten classes, 3 × 32 × 32",
        fields: &[
            &[field("folder", ValueType::Text, Optional, "where the binary batches are")],
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
                field("train", ValueType::Whole(1), Required, "samples to learn from"),
                field("test", ValueType::Whole(0), Required, "samples to test on"),
                field("shape", ValueType::Sizes, Required, "the shape of a sample"),
                field("classes", ValueType::Whole(1), Required, "how many classes"),
            ],
            SAMPLES,
        ],
    },
    &MapSchema { name: "toy_images", about: "circles and ellipses, 3 × 32 × 32", fields: &[SAMPLES] },
    &MapSchema {
        name: "images",
        about: "a folder with train/CLASS/*.png (or .pgm, .ppm), and perhaps test",
        fields: &[&[field("folder", ValueType::Text, Required, "the folder")], SAMPLES],
    },
    &MapSchema {
        name: "arrays",
        about: ".npy files, the first axis being the samples",
        fields: &[
            &[
                field("inputs", ValueType::Text, Required, "inputs to learn from"),
                field("targets", ValueType::Text, Optional, "their classes, or numbers"),
                field("test_inputs", ValueType::Text, Optional, "inputs to test on"),
                field("test_targets", ValueType::Text, Optional, "their classes, or numbers"),
            ],
            SAMPLES,
        ],
    },
    &MapSchema {
        name: "own",
        about: "a data set that a program added to those of this crate",
        fields: &[OWN, SAMPLES],
    },
];

const OWN: &[Field] = &[
    field("kind", ValueType::Text, Required, "the name under which the program added it"),
    field("settings", ValueType::Any, Optional, "whatever it wants to know"),
];

static ANY_LAYER: ValueType = ValueType::OneOf(LAYERS);

const LAYER_LIST: &[Field] = &[
    field(
        "cost",
        ValueType::Choice(&["cross_entropy", "softmax_cross_entropy", "sum_of_squares"]),
        Required,
        "what training makes small",
    ),
    field("layers", ValueType::Many(&ANY_LAYER), Required, "the layers from the bottom"),
];

pub(super) static MODELS: &[&MapSchema] = &[
    &MapSchema { name: "network", about: "layers that learn targets", fields: &[LAYER_LIST] },
    &MapSchema {
        name: "autoencoder",
        about: "layers that learn to give back their input",
        fields: &[LAYER_LIST],
    },
    &MapSchema {
        name: "sparse_autoencoder",
        about: "groups of local filtering, L2 pooling and contrast, each pretrained; then a network",
        fields: &[
            LAYER_LIST,
            &[
                field(
                    "pretrain_epochs",
                    ValueType::Whole(0),
                    Required,
                    "epochs of pretraining for each group",
                ),
                field("pretrain_rate", ValueType::NotNegative, Required, "the learning rate of pretraining"),
                field(
                    "last_layer_epochs",
                    ValueType::Whole(0),
                    Default("0"),
                    "first epochs that train the last layer alone",
                ),
                field(
                    "sparsity",
                    ValueType::NotNegative,
                    Required,
                    "what each pooled unit costs in pretraining",
                ),
                field(
                    "tied_weights",
                    ValueType::Flag,
                    Default("true"),
                    "whether filters reconstruct what they filtered",
                ),
                field(
                    "spot_check",
                    ValueType::Flag,
                    Default("false"),
                    "whether to look for the unit that knows each class best: spot_check.csv",
                ),
                field(
                    "visualize",
                    ValueType::Flag,
                    Default("false"),
                    "whether to draw the inputs that excite these units most: stimuli.png",
                ),
            ],
        ],
    },
];

const NAME: &[Field] = &[field("name", ValueType::Text, Optional, "its name in checkpoints and messages")];
const LEARNS: &[Field] = &[
    field("weights", ValueType::OneOf(WEIGHTS), Optional, "its first weights"),
    field("rule", ValueType::OneOf(RULES), Optional, "its learning rule"),
];
const BIAS: &[Field] = &[
    field("bias", ValueType::Flag, Default("true"), "whether each output map has a bias"),
    field("first_bias", ValueType::Number, Default("0"), "the first value of biases"),
];
pub(super) const FUNCTIONS: ValueType =
    ValueType::Choice(&["identity", "logistic", "tanh", "rectified", "leaky", "softplus", "softmax"]);
const ACTIVATION: &[Field] = &[
    field("activation", FUNCTIONS, Default("identity"), "the function that follows"),
    field("slope", ValueType::Number, Default("0.01"), "the slope of `leaky` below zero"),
];
const WINDOW: &[Field] = &[
    field("kernel", ValueType::Pair(1), Required, "rows and columns of the window"),
    field("stride", ValueType::Pair(1), Default("1"), "how far the window moves"),
    field("padding", ValueType::Pair(0), Default("0"), "zeros beyond each border"),
];
const MAPS: &[Field] = &[field("maps", ValueType::Whole(1), Required, "how many output maps")];

pub(super) static LAYERS: &[&MapSchema] = &[
    &MapSchema {
        name: "fully_connected",
        about: "every output from all inputs",
        fields: &[
            NAME,
            &[field("outputs", ValueType::Whole(1), Required, "how many outputs")],
            BIAS,
            ACTIVATION,
            LEARNS,
        ],
    },
    &MapSchema {
        name: "convolution",
        about: "the same filters at every place",
        fields: &[NAME, MAPS, WINDOW, BIAS, ACTIVATION, LEARNS],
    },
    &MapSchema {
        name: "local",
        about: "filters of its own at every place",
        fields: &[
            NAME,
            MAPS,
            WINDOW,
            &[field("unit_rows", ValueType::Flag, Default("true"), "whether each filter keeps length one")],
            ACTIVATION,
            LEARNS,
        ],
    },
    &MapSchema {
        name: "pooling",
        about: "one number for each window of each map",
        fields: &[
            NAME,
            &[
                field(
                    "pool",
                    ValueType::Choice(&["max", "average", "l2"]),
                    Default("max"),
                    "what becomes of a window",
                ),
                field("kernel", ValueType::Pair(1), Required, "rows and columns of the window"),
                field(
                    "stride",
                    ValueType::Pair(1),
                    Optional,
                    "how far the window moves; its own size without it",
                ),
                field("padding", ValueType::Pair(0), Default("0"), "places beyond each border"),
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
                field("size", ValueType::Whole(1), Default("5"), "how many maps dampen each other"),
                field("alpha", ValueType::Number, Default("0.0001"), "how much"),
                field("beta", ValueType::Number, Default("0.75"), "with which power"),
            ],
        ],
    },
    &MapSchema {
        name: "dropout",
        about: "keeps numbers by chance while learning",
        fields: &[NAME, &[field("keep", ValueType::Number, Default("0.5"), "the chance to be kept")]],
    },
    &MapSchema {
        name: "batch_norm",
        about: "each map has mean 0 and deviation 1 over a batch, then a learned scale and shift",
        fields: &[
            NAME,
            &[
                field(
                    "kept",
                    ValueType::Number,
                    Default("0.9"),
                    "what stays of running averages with each batch",
                ),
                field("epsilon", ValueType::NotNegative, Default("0.001"), "added to the variance"),
                field("rule", ValueType::OneOf(RULES), Optional, "its learning rule"),
            ],
            ACTIVATION,
        ],
    },
    &MapSchema {
        name: "activation",
        about: "a function of each number",
        fields: &[
            NAME,
            &[
                field("function", FUNCTIONS, Required, "which"),
                field("slope", ValueType::Number, Default("0.01"), "the slope of `leaky` below zero"),
            ],
        ],
    },
    &MapSchema {
        name: "own",
        about: "a layer that a program added to those of this crate",
        fields: &[NAME, OWN, ACTIVATION, LEARNS],
    },
];

const STEP: &MapSchema = &MapSchema {
    name: "step",
    about: "times a ratio after every few epochs",
    fields: &[&[
        field("initial", ValueType::NotNegative, Required, "the first value"),
        field("ratio", ValueType::NotNegative, Required, "what it is multiplied by"),
        field("epochs", ValueType::Whole(1), Required, "how often"),
    ]],
};
const LINEAR: &MapSchema = &MapSchema {
    name: "linear",
    about: "a straight line between two epochs",
    fields: &[&[
        field("initial", ValueType::NotNegative, Required, "the first value"),
        field("start", ValueType::Whole(0), Default("0"), "the last epoch of the first value"),
        field("saturate", ValueType::Whole(0), Required, "the first epoch of the last value"),
        field("saturated", ValueType::NotNegative, Required, "the last value"),
    ]],
};
pub(super) static SCHEDULES: &[&MapSchema] = &[STEP, LINEAR];
const SCHEDULE: ValueType = ValueType::NumberOr(SCHEDULES);
const DECAY: Field =
    field("decay", ValueType::NotNegative, Default("0"), "this times the weight is added to its gradient");
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
        about: "momentum with the gradient as if one had already moved",
        fields: &[&[RATE, DECAY, field("coefficient", SCHEDULE, Default("0.9"), "m, or a schedule")]],
    },
    &MapSchema {
        name: "adadelta",
        about: "steps of the size of recent steps",
        fields: &[&[
            field("rate", SCHEDULE, Default("1"), "times each step"),
            DECAY,
            field("rho", ValueType::BelowOne, Default("0.95"), "what stays of running averages"),
            field("epsilon", ValueType::NotNegative, Default("1e-6"), "keeps divisions finite"),
        ]],
    },
    &MapSchema {
        name: "adagrad",
        about: "rates that fall with the gradients seen",
        fields: &[&[
            RATE,
            DECAY,
            field("epsilon", ValueType::NotNegative, Default("1e-8"), "keeps divisions finite"),
        ]],
    },
    &MapSchema {
        name: "adam",
        about: "running averages of gradient and square",
        fields: &[&[
            field("rate", SCHEDULE, Default("0.001"), "the learning rate, or a schedule"),
            DECAY,
            field("beta1", ValueType::BelowOne, Default("0.9"), "what stays of the average gradient"),
            field("beta2", ValueType::BelowOne, Default("0.999"), "what stays of the average square"),
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
        about: "evenly between two bounds",
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
    &MapSchema { name: "auto_uniform", about: "evenly between ∓1/√inputs", fields: &[] },
    &MapSchema {
        name: "node_normalized",
        about: "evenly between ∓scale·√(6 / (inputs + outputs))",
        fields: &[&[field("scale", ValueType::Number, Default("1"), "times the bound")]],
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
            field("connections", ValueType::Whole(1), Default("15"), "weights of a row that are not zero"),
            field("radius", ValueType::Number, Default("1.2"), "the largest absolute eigenvalue"),
        ]],
    },
];
