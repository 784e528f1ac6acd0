//! The format of experiment files: every key, with its type, its default and its purpose.

use super::describe::Presence::{Default, Optional, Required};
use super::describe::ValueType::*;
use super::describe::{Field, MapSchema, Presence, ValueType};

const fn field(name: &'static str, kind: ValueType, need: Presence, about: &'static str) -> Field {
    Field { name, kind, need, about }
}

const fn map(name: &'static str, about: &'static str, fields: &'static [&'static [Field]]) -> MapSchema {
    MapSchema { name, about, fields }
}

/// The top level of a file.
pub(super) static EXPERIMENT: MapSchema = map(
    "",
    "an experiment",
    &[&[
        field("name", Text, Optional, "the name of run folders; by default the name of the file"),
        field("seed", Seed, Default("0"), "the seed of all random numbers"),
        field("precision", Choice(&["f32", "f64"]), Default("f32"), "the floating-point type of all layers"),
        field("threads", Whole(1), Default("1"), "threads per process"),
        field(
            "deterministic",
            Flag,
            Optional,
            "whether all results have the same bits on any number of processes; they have without this key, unless workers share a \
             table or a layer is a program's own",
        ),
        field("epochs", Whole(0), Required, "passes over all training samples"),
        field("batch_size", Whole(1), Required, "samples per update"),
        field("data", OneOf(DATA), Required, "the data set"),
        field("model", OneOf(MODELS), Required, "the model"),
        field("rule", OneOf(RULES), Default("sgd"), "the default learning rule of layers"),
        field("weights", OneOf(WEIGHTS), Default("auto_uniform"), "the default initial weights of layers"),
        field(
            "initial_weights",
            Text,
            Optional,
            "a .safetensors or .npz file with weights named layer/weights",
        ),
        field("distributed", OneOf(SPREADS), Optional, "how training is distributed over processes"),
        field("test_every", Whole(1), Default("1"), "epochs between tests"),
        field("save_every", Whole(1), Default("1"), "epochs between checkpoints"),
        field("keep", Whole(1), Default("2"), "number of checkpoints to keep"),
    ]],
);

const GRID: &[Field] = &[field(
    "grid",
    Text,
    Optional,
    "processes along each axis, such as data=2,h=2,w=2; by default as even as possible",
)];

pub(super) static SPREADS: &[&MapSchema] = &[
    &map("data", "each process has some samples of a batch", &[GRID]),
    &map("halo", "each process has some rows and columns of every sample", &[GRID]),
    &map("vector", "each process has some inputs of every layer", &[GRID]),
    &map(
        "table",
        "each process has some samples of a batch; weights are shared through a table",
        &[
            GRID,
            &[field(
                "consistency",
                Text,
                Default("async"),
                "how far processes may drift apart: async, ssp:3 (three batches), bsp (not at all)",
            )],
        ],
    ),
];

const SAMPLES: &[Field] = &[
    field("sample", Number, Default("100"), "percentage of samples to use, chosen by the seed"),
    field("shuffle", Flag, Default("true"), "whether to shuffle the samples in each epoch"),
    field("test_samples", Whole(0), Optional, "number of test samples to use, from the first"),
];

const DOWNLOAD: &[Field] = &[field(
    "download",
    Flag,
    Default("false"),
    "whether to download missing files; into the user's cache if there is no folder",
)];

pub(super) static DATA: &[&MapSchema] = &[
    &map(
        "mnist",
        "handwritten digits, 28 × 28",
        &[
            &[field(
                "folder",
                Text,
                Optional,
                "the folder of the four idx files; by default a small built-in sample",
            )],
            DOWNLOAD,
            SAMPLES,
        ],
    ),
    &map(
        "cifar10",
        "colour pictures of ten classes, 3 × 32 × 32",
        &[&[field("folder", Text, Optional, "the folder of the binary batches")], DOWNLOAD, SAMPLES],
    ),
    &map("iris", "Fisher's 150 flowers", &[SAMPLES]),
    &map(
        "uniform_random",
        "random numbers with random classes",
        &[
            &[
                field("train", Whole(1), Required, "number of training samples"),
                field("test", Whole(0), Required, "number of test samples"),
                field("shape", Sizes, Required, "the shape of a sample"),
                field("classes", Whole(1), Required, "number of classes"),
            ],
            SAMPLES,
        ],
    ),
    &map("toy_images", "circles and ellipses, 3 × 32 × 32", &[SAMPLES]),
    &map(
        "images",
        "a folder with train/CLASS/*.png (or .pgm, .ppm), and optionally test",
        &[&[field("folder", Text, Required, "the folder")], SAMPLES],
    ),
    &map(
        "arrays",
        ".npy files with samples along the first axis",
        &[
            &[
                field("inputs", Text, Required, "training inputs"),
                field("targets", Text, Optional, "their classes or values"),
                field("test_inputs", Text, Optional, "test inputs"),
                field("test_targets", Text, Optional, "their classes or values"),
            ],
            SAMPLES,
        ],
    ),
    &map("own", "a custom data set of the program", &[OWN, SAMPLES]),
];

const OWN: &[Field] = &[
    field("kind", Text, Required, "the name under which the program registered it"),
    field("settings", Any, Optional, "its settings"),
];

static ANY_LAYER: ValueType = OneOf(LAYERS);

const LAYER_LIST: &[Field] = &[
    field(
        "cost",
        Choice(&["cross_entropy", "softmax_cross_entropy", "sum_of_squares"]),
        Required,
        "the cost that training minimises",
    ),
    field("layers", Many(&ANY_LAYER), Required, "the layers, from input to output"),
];

pub(super) static MODELS: &[&MapSchema] = &[
    &map("network", "layers trained to predict targets", &[LAYER_LIST]),
    &map("autoencoder", "layers trained to reconstruct their input", &[LAYER_LIST]),
    &map(
        "sparse_autoencoder",
        "groups of local filtering, L2 pooling and contrast, each pretrained; then a network",
        &[
            LAYER_LIST,
            &[
                field("pretrain_epochs", Whole(0), Required, "pretraining epochs per group"),
                field("pretrain_rate", NotNegative, Required, "the learning rate of pretraining"),
                field(
                    "last_layer_epochs",
                    Whole(0),
                    Default("0"),
                    "initial epochs that train only the last layer",
                ),
                field("sparsity", NotNegative, Required, "the cost per pooled unit in pretraining"),
                field(
                    "tied_weights",
                    Flag,
                    Default("true"),
                    "whether the same filters encode and reconstruct",
                ),
                field(
                    "spot_check",
                    Flag,
                    Default("false"),
                    "whether to find the unit that best detects each class: spot_check.csv",
                ),
                field(
                    "visualize",
                    Flag,
                    Default("false"),
                    "whether to draw the inputs to which these units respond most: stimuli.png",
                ),
            ],
        ],
    ),
];

const NAME: &[Field] = &[field("name", Text, Optional, "its name in checkpoints and messages")];
const LEARNS: &[Field] = &[
    field("weights", OneOf(WEIGHTS), Optional, "its initial weights"),
    field("rule", OneOf(RULES), Optional, "its learning rule"),
];
const BIAS: &[Field] = &[
    field("bias", Flag, Default("true"), "whether each output map has a bias"),
    field("first_bias", Number, Default("0"), "the initial value of biases"),
];
pub(super) const FUNCTIONS: ValueType =
    Choice(&["identity", "logistic", "tanh", "rectified", "leaky", "softplus", "softmax"]);
const ACTIVATION: &[Field] = &[
    field("activation", FUNCTIONS, Default("identity"), "the activation function"),
    field("slope", Number, Default("0.01"), "the slope of `leaky` below zero"),
];
const WINDOW: &[Field] = &[
    field("kernel", Pair(1), Required, "rows and columns of the window"),
    field("stride", Pair(1), Default("1"), "the step of the window"),
    field("padding", Pair(0), Default("0"), "zero padding beyond each border"),
];
const MAPS: &[Field] = &[field("maps", Whole(1), Required, "number of output maps")];

pub(super) static LAYERS: &[&MapSchema] = &[
    &map(
        "fully_connected",
        "every output depends on all inputs",
        &[NAME, &[field("outputs", Whole(1), Required, "number of outputs")], BIAS, ACTIVATION, LEARNS],
    ),
    &map(
        "convolution",
        "the same filters at every position",
        &[NAME, MAPS, WINDOW, BIAS, ACTIVATION, LEARNS],
    ),
    &map(
        "local",
        "separate filters at every position",
        &[
            NAME,
            MAPS,
            WINDOW,
            &[field("unit_rows", Flag, Default("true"), "whether filters are normalised to length one")],
            ACTIVATION,
            LEARNS,
        ],
    ),
    &map(
        "pooling",
        "one value per window of each map",
        &[
            NAME,
            &[
                field("pool", Choice(&["max", "average", "l2"]), Default("max"), "how a window is reduced"),
                field("kernel", Pair(1), Required, "rows and columns of the window"),
                field("stride", Pair(1), Optional, "the step of the window; by default its own size"),
                field("padding", Pair(0), Default("0"), "padding beyond each border"),
            ],
        ],
    ),
    &map(
        "contrast",
        "local contrast normalisation",
        &[NAME, &[field("kernel", Pair(1), Required, "odd sides of the window")]],
    ),
    &map(
        "response",
        "cross-map response normalisation: x / (1 + alpha·Σx²)^beta",
        &[
            NAME,
            &[
                field("size", Whole(1), Default("5"), "number of neighbouring maps"),
                field("alpha", Number, Default("0.0001"), "the strength"),
                field("beta", Number, Default("0.75"), "the exponent"),
            ],
        ],
    ),
    &map(
        "dropout",
        "zeroes values at random during training",
        &[NAME, &[field("keep", Number, Default("0.5"), "the probability to keep a value")]],
    ),
    &map(
        "batch_norm",
        "normalises each map to mean 0 and deviation 1 over a batch, then applies a learned scale and shift",
        &[
            NAME,
            &[
                field("kept", Number, Default("0.9"), "the decay of running averages per batch"),
                field("epsilon", NotNegative, Default("0.001"), "added to the variance"),
                field("rule", OneOf(RULES), Optional, "its learning rule"),
            ],
            ACTIVATION,
        ],
    ),
    &map(
        "activation",
        "an element-wise function",
        &[
            NAME,
            &[
                field("function", FUNCTIONS, Required, "the activation function"),
                field("slope", Number, Default("0.01"), "the slope of `leaky` below zero"),
            ],
        ],
    ),
    &map("own", "a custom layer of the program", &[NAME, OWN, ACTIVATION, LEARNS]),
];

const STEP: &MapSchema = &map(
    "step",
    "multiplied by a ratio every few epochs",
    &[&[
        field("initial", NotNegative, Required, "the initial value"),
        field("ratio", NotNegative, Required, "the factor"),
        field("epochs", Whole(1), Required, "the number of epochs between two steps"),
    ]],
);
const LINEAR: &MapSchema = &map(
    "linear",
    "linear between two epochs",
    &[&[
        field("initial", NotNegative, Required, "the initial value"),
        field("start", Whole(0), Default("0"), "the last epoch with the initial value"),
        field("saturate", Whole(0), Required, "the first epoch with the final value"),
        field("saturated", NotNegative, Required, "the final value"),
    ]],
);
pub(super) static SCHEDULES: &[&MapSchema] = &[STEP, LINEAR];
const SCHEDULE: ValueType = NumberOr(SCHEDULES);
const DECAY: Field = field(
    "weight_decay",
    NotNegative,
    Default("0"),
    "weight decay: adds this times the weight to its gradient",
);
const DECOUPLED: &str = "weight decay: subtracts this times lr of the weight";
const LR: Field = field("lr", SCHEDULE, Default("0.01"), "the learning rate, or a schedule");
const SMALL_LR: Field = field("lr", SCHEDULE, Default("0.001"), "the learning rate, or a schedule");
const MOMENTUM: Field = field("momentum", SCHEDULE, Default("0.9"), "m, or a schedule");
const BETA1: Field = field("beta1", BelowOne, Default("0.9"), "the decay of the average gradient");
const BETA2: Field =
    field("beta2", BelowOne, Default("0.999"), "the decay of the average square, or of the largest");
const EPS: Field = field("eps", NotNegative, Default("1e-8"), "keeps divisions finite");

/// The rules. Names, formulas and defaults are those of the updaters of tables, and of `torch.optim`.
pub(super) static RULES: &[&MapSchema] = &[
    &map(
        "sgd",
        "w ← w − lr·g; with a momentum, as `momentum` or `nesterov`",
        &[&[
            LR,
            DECAY,
            field("momentum", SCHEDULE, Default("0"), "m, or a schedule"),
            field("nesterov", Flag, Default("false"), "whether the momentum is Nesterov's"),
        ]],
    ),
    &map("momentum", "v ← m·v + lr·g, w ← w − v", &[&[LR, DECAY, MOMENTUM]]),
    &map("nesterov", "v ← m·v + lr·g, w ← w − (m·v + lr·g)", &[&[LR, DECAY, MOMENTUM]]),
    &map(
        "adagrad",
        "rates that decrease with the accumulated squared gradients",
        &[&[
            LR,
            DECAY,
            field("lr_decay", NotNegative, Default("0"), "the decay of lr with the number of updates"),
            field(
                "initial_accumulator_value",
                NotNegative,
                Default("0"),
                "the initial sum of squared gradients",
            ),
            field("eps", NotNegative, Default("1e-10"), "keeps divisions finite"),
        ]],
    ),
    &map(
        "rmsprop",
        "rates divided by the root of the average squared gradient",
        &[&[LR, DECAY, field("alpha", BelowOne, Default("0.99"), "the decay of the average square"), EPS]],
    ),
    &map(
        "adadelta",
        "steps scaled to the size of recent steps",
        &[&[
            field("lr", SCHEDULE, Default("1"), "multiplies each step"),
            DECAY,
            field("rho", BelowOne, Default("0.9"), "the decay of running averages"),
            field("eps", NotNegative, Default("1e-6"), "keeps divisions finite"),
        ]],
    ),
    &map("adam", "running averages of the gradient and its square", &[&[SMALL_LR, DECAY, BETA1, BETA2, EPS]]),
    &map(
        "adamw",
        "adam with decoupled weight decay",
        &[&[SMALL_LR, field("weight_decay", NotNegative, Default("0.01"), DECOUPLED), BETA1, BETA2, EPS]],
    ),
    &map(
        "adamax",
        "adam with the largest recent gradient in place of the average square",
        &[&[
            field("lr", SCHEDULE, Default("0.002"), "the learning rate, or a schedule"),
            DECAY,
            BETA1,
            BETA2,
            EPS,
        ]],
    ),
    &map(
        "lion",
        "steps of constant length in the direction of an average gradient",
        &[&[
            field("lr", SCHEDULE, Default("0.0001"), "the learning rate, or a schedule"),
            field("weight_decay", NotNegative, Default("0"), DECOUPLED),
            BETA1,
            field("beta2", BelowOne, Default("0.99"), "the decay of the average that is kept"),
        ]],
    ),
];

pub(super) static WEIGHTS: &[&MapSchema] = &[
    &map("constant", "all the same", &[&[field("value", Number, Default("0"), "the value")]]),
    &map(
        "uniform",
        "uniform between two bounds",
        &[&[
            field("low", Number, Required, "the lower bound"),
            field("high", Number, Required, "the upper bound"),
        ]],
    ),
    &map(
        "normal",
        "a Gaussian",
        &[&[
            field("mean", Number, Default("0"), "its mean"),
            field("deviation", NotNegative, Default("1"), "its standard deviation"),
        ]],
    ),
    &map("auto_uniform", "uniform between ∓1/√inputs", &[]),
    &map(
        "node_normalized",
        "uniform between ∓scale·√(6 / (inputs + outputs))",
        &[&[field("scale", Number, Default("1"), "multiplies the bound")]],
    ),
    &map(
        "orthogonal",
        "orthogonal rows or columns",
        &[&[field("scale", Number, Default("1"), "their length")]],
    ),
    &map(
        "sparse_eigen",
        "a few normal weights in each row, scaled to a spectral radius",
        &[&[
            field("connections", Whole(1), Default("15"), "nonzero weights per row"),
            field("radius", Number, Default("1.2"), "the largest absolute eigenvalue"),
        ]],
    ),
];
