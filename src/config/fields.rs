//! The vocabulary of a file: each table, its fields, and what they hold.
//!
//! The walk knows a field from this list, and the JSON Schema is written from it, so the two cannot differ.

/// The fields of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields(pub(super) &'static [Field]);

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// A sentence for editors.
    pub(super) says: &'static str,
    pub(super) shape: Shape,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Text,
    Whole,
    Flag,
    Duration,
    /// One of these words.
    Word(&'static [&'static str]),
    List(&'static Shape),
    /// One of them, or a list of them.
    OneOrList(&'static Shape),
    /// A table whose names are free.
    Map(&'static Shape),
    Table(&'static Fields),
    Any(&'static [Shape]),
    /// A shape of [`NAMED`].
    Named(&'static str),
}

impl Fields {
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.0.iter().map(|field| field.name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|field| field.name == name)
    }
}

const fn field(name: &'static str, says: &'static str, shape: Shape) -> Field {
    Field { name, says, shape }
}

/// The shapes that have a name in the schema.
pub(super) const NAMED: &[(&str, Shape)] = &[
    (
        "limit",
        Shape::Any(&[Shape::Text, Shape::Whole, Shape::Table(&LIMIT)]),
    ),
    (
        "key",
        Shape::Any(&[
            Shape::Text,
            Shape::List(&Shape::Named("key")),
            Shape::Table(&KEY),
        ]),
    ),
    ("condition", Shape::Table(&CONDITION)),
    ("secret", Shape::Any(&[Shape::Text, Shape::Table(&ENV)])),
    ("policy", Shape::Table(&POLICY)),
];

pub(super) static ROOT: Fields = Fields(&[
    field(
        "$schema",
        "The address of the JSON Schema, for editors.",
        Shape::Text,
    ),
    field(
        "policies",
        "The policies, each a table under its name.",
        Shape::Map(&Shape::Named("policy")),
    ),
    field(
        "plans",
        "The plans: under the name of each, a limit for each policy that it speaks of.",
        Shape::Map(&Shape::Map(&Shape::Named("limit"))),
    ),
    field(
        "default_plan",
        "The plan of requests without a plan, and of requests with an unknown one.",
        Shape::Text,
    ),
    field(
        "plan_of",
        "How the plan of a request is found.",
        Shape::Table(&PLAN_OF),
    ),
    field("proxies", "The trusted proxies.", Shape::Table(&PROXIES)),
    field(
        "lists",
        "Requests that no policy decides.",
        Shape::Table(&LISTS),
    ),
    field(
        "responses",
        "What clients are told.",
        Shape::Table(&RESPONSES),
    ),
    field(
        "store",
        "Where the state is; in this process unless said.",
        Shape::Table(&STORE),
    ),
    field(
        "nodes",
        "Divides each limit by this number of nodes, which share no store.",
        Shape::Whole,
    ),
    field(
        "mode",
        "The mode of all policies together, which weakens theirs.",
        Shape::Word(&["enforce", "shadow", "off"]),
    ),
    field(
        "wait_places",
        "How many requests may wait for their turn, under all policies together.",
        Shape::Whole,
    ),
    field(
        "secret",
        "Hashes keys that are credentials.",
        Shape::Named("secret"),
    ),
    field(
        "adapt",
        "What the limits of policies follow that have `adapt`.",
        Shape::Table(&ADAPT),
    ),
    field(
        "concurrency",
        "How many requests may be in flight at once, learnt from how long they take: \"adaptive\", or a table.",
        Shape::Any(&[Shape::Word(&["adaptive"]), Shape::Table(&CONCURRENCY)]),
    ),
]);

pub(super) static POLICY: Fields = Fields(&[
    field(
        "algorithm",
        "The name of an algorithm, or its whole text; anchored-window unless said.",
        Shape::Text,
    ),
    field(
        "quota",
        "A limit and a period: \"100/minute\".",
        Shape::Any(&[Shape::Text, Shape::Table(&QUOTA)]),
    ),
    field(
        "concurrency",
        "How many requests may be in flight at once, in place of a quota.",
        Shape::Whole,
    ),
    field(
        "limit",
        "The limit of the quota, in place of `quota`.",
        Shape::Whole,
    ),
    field("per", "The period of the quota: \"minute\".", Shape::Text),
    field("burst", "The burst of a bucket.", Shape::Whole),
    field("capacity", "The capacity of a leaky bucket.", Shape::Whole),
    field(
        "slots",
        "The number of slots of sliding-slots.",
        Shape::Whole,
    ),
    field("places", "The places of a leaky queue.", Shape::Whole),
    field(
        "up_to",
        "The most that a sliding log may hold.",
        Shape::Whole,
    ),
    field("key", "What is counted apart.", Shape::Named("key")),
    field(
        "cost",
        "How many units a request takes; 1 unless said.",
        Shape::Any(&[
            Shape::Whole,
            Shape::Table(&FUNCTION),
            Shape::List(&Shape::Table(&COST)),
        ]),
    ),
    field(
        "when",
        "The condition under which the policy applies. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "mode",
        "Whether it is enforced, decides in shadow, or is off.",
        Shape::Word(&["enforce", "shadow", "off"]),
    ),
    field(
        "was",
        "The name under which the policy began, if it has been renamed.",
        Shape::Text,
    ),
    field(
        "soft",
        "Lets requests over the limit go on, marked.",
        Shape::Flag,
    ),
    field(
        "no_key",
        "What happens to requests without a key: a word, or the status of their refusal.",
        Shape::Any(&[Shape::Word(&["shared", "skip"]), Shape::Whole]),
    ),
    field(
        "on_store_failure",
        "What happens while the store cannot decide; local unless said.",
        Shape::Word(&["local", "allow", "refuse"]),
    ),
    field(
        "wait_up_to",
        "How long a denied request may wait for its turn.",
        Shape::Duration,
    ),
    field(
        "wait_places",
        "How many requests of a key may wait.",
        Shape::Whole,
    ),
    field(
        "for_all_plans",
        "Says that the policy has one limit under all plans.",
        Shape::Flag,
    ),
    field(
        "penalty",
        "Blocks a key that the policy has refused too often.",
        Shape::Table(&PENALTY),
    ),
    field("most", "The most that a request may cost.", Shape::Whole),
    field(
        "reserve",
        "How many units requests of low priority leave to the others.",
        Shape::Whole,
    ),
    field(
        "low_priority",
        "Which requests are of low priority. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "estimate",
        "How many units a request is charged when it comes; its real cost is settled at its end.",
        Shape::Any(&[Shape::Whole, Shape::Table(&FUNCTION)]),
    ),
    field(
        "settle",
        "Where the real cost of a request is found. Of a list, the first place counts that tells it.",
        Shape::OneOrList(&Shape::Any(&[
            Shape::Word(&["cost", "spend", "bytes"]),
            Shape::Table(&SETTLE),
        ])),
    ),
    field(
        "charge_when",
        "Charges only requests that end so. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Table(&ENDING)),
    ),
    field(
        "refund_when",
        "Gives back what a request was charged that ends so. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Table(&ENDING)),
    ),
    field(
        "unless_settled",
        "What a request costs that ends without an answer; estimate unless said.",
        Shape::Any(&[Shape::Word(&["estimate", "nothing"]), Shape::Whole]),
    ),
    field("key_limits", "Limits by key.", Shape::Table(&KEY_LIMITS)),
    field(
        "operation",
        "Which of the operations a request is: \"path\", or what a key reads.",
        Shape::Named("key"),
    ),
    field(
        "operations",
        "Limits by operation, and `other` for all other operations.",
        Shape::Map(&Shape::Named("limit")),
    ),
    field(
        "hours",
        "Limits at certain times; outside them, the limit is the policy's own.",
        Shape::Table(&HOURS),
    ),
    field(
        "zone",
        "The time zone of a calendar-day, calendar-week, calendar-month or calendar-year.",
        Shape::Text,
    ),
    field(
        "start",
        "When a day of a calendar begins: \"06:00\"; at midnight unless said.",
        Shape::Text,
    ),
    field(
        "first_day",
        "On which day a calendar-week begins; monday unless said.",
        Shape::Word(&WEEKDAYS),
    ),
    field(
        "adapt",
        "Lets the limit follow the load, as the table `adapt` of the file says.",
        Shape::Flag,
    ),
    field(
        "class",
        "How much requests matter under load; critical unless said. Of a list, the first that holds.",
        Shape::OneOrList(&Shape::Any(&[Shape::Word(CLASSES), Shape::Table(&CLASS)])),
    ),
]);

const CLASSES: &[&str] = &["critical_plus", "critical", "sheddable_plus", "sheddable"];

pub(super) static CLASS: Fields = Fields(&[
    field(
        "class",
        "How much such requests matter.",
        Shape::Word(CLASSES),
    ),
    field(
        "when",
        "Which requests; all unless said. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);

pub(super) static ADAPT: Fields = Fields(&[
    field(
        "signals",
        "What is read: cpu, memory, cpu pressure, memory pressure, io pressure, failures, or what code has registered.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "latency",
        "Adds the signal `latency`, of this target.",
        Shape::Duration,
    ),
    field(
        "in_flight",
        "Adds the signal `in flight`, of so many requests.",
        Shape::Whole,
    ),
    field(
        "answer_time",
        "Adds the signal `store`, the answer time of Redis, of this target.",
        Shape::Duration,
    ),
    field(
        "steps",
        "A table of thresholds, in place of the standard one: 90 % to a tenth, 70 % to a half, 50 % of cpu to three quarters.",
        Shape::List(&Shape::Table(&STEP)),
    ),
    field(
        "targets",
        "The most percent that each of these signals should tell: limits fall while it tells more.",
        Shape::Map(&Shape::Whole),
    ),
    field(
        "gradients",
        "Signals that should stay near what they are when all is well.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "least",
        "The least part of the limits, in percent; 10 unless said.",
        Shape::Whole,
    ),
    field(
        "most",
        "The most that limits can grow to, in percent; 100 unless said.",
        Shape::Whole,
    ),
    field(
        "grow_by",
        "By how many percent steps grow at once; 5 unless said.",
        Shape::Whole,
    ),
    field(
        "hold",
        "The time between two steps up; 10 seconds unless said.",
        Shape::Duration,
    ),
    field(
        "immediate",
        "Follows each sample as it is, without smoothing and holds.",
        Shape::Flag,
    ),
]);

pub(super) static STEP: Fields = Fields(&[
    field(
        "signals",
        "Of any of these signals.",
        Shape::OneOrList(&Shape::Text),
    ),
    field("above", "Above so many percent.", Shape::Whole),
    field("limit", "The part of the limits, in percent.", Shape::Whole),
]);

pub(super) static CONCURRENCY: Fields = Fields(&[
    field(
        "start",
        "The limit before anything is learnt; 20 unless said.",
        Shape::Whole,
    ),
    field("least", "The least; 1 unless said.", Shape::Whole),
    field("most", "The most; 1,000 unless said.", Shape::Whole),
    field(
        "healthy",
        "The longest time that counts as healthy.",
        Shape::Duration,
    ),
    field(
        "partitions",
        "Shares that are kept for some requests, and lent while they are idle.",
        Shape::Map(&Shape::Table(&PARTITION)),
    ),
    field(
        "except",
        "Requests that take no slot, such as probes. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "refusal_status",
        "The status of a refusal: 503 unless said, or 429.",
        Shape::Whole,
    ),
]);

pub(super) static PARTITION: Fields = Fields(&[
    field("share", "The share, in percent.", Shape::Whole),
    field(
        "when",
        "Which requests. Of a list, one has to hold.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

pub(super) static HOURS: Fields = Fields(&[
    field("zone", "The time zone: \"Europe/London\".", Shape::Text),
    field(
        "limits",
        "Under each interval, such as \"22:00-06:00\", its limit, or a share of the limit: \"2 times\".",
        Shape::Map(&Shape::Named("limit")),
    ),
]);

pub(super) static SETTLE: Fields = Fields(&[
    field(
        "header",
        "The header of the response, or the trailer, that tells the cost.",
        Shape::Text,
    ),
    field(
        "bytes",
        "Counts the bytes of the body in units of so many, rounded up.",
        Shape::Whole,
    ),
]);

pub(super) static ENDING: Fields = Fields(&[
    field(
        "status",
        "The status of the response, or its class: \"5xx\". Of a list, one.",
        Shape::OneOrList(&Shape::Any(&[
            Shape::Whole,
            Shape::Word(&["1xx", "2xx", "3xx", "4xx", "5xx"]),
        ])),
    ),
    field(
        "grpc_status",
        "The status of a gRPC call, as a number. Of a list, one.",
        Shape::OneOrList(&Shape::Whole),
    ),
    field(
        "complete",
        "Whether the whole response went out.",
        Shape::Flag,
    ),
]);

pub(super) static PENALTY: Fields = Fields(&[
    field(
        "refusals",
        "At how many refusals a key is blocked.",
        Shape::Whole,
    ),
    field(
        "within",
        "Within what time they have to come.",
        Shape::Duration,
    ),
    field(
        "block",
        "How long the first block lasts; a minute unless said.",
        Shape::Duration,
    ),
    field(
        "times",
        "How many times as long each further block lasts; 1 unless said.",
        Shape::Whole,
    ),
    field(
        "up_to",
        "How long a block can last at most; a day unless said.",
        Shape::Duration,
    ),
    field(
        "forget_after",
        "After how long without a block the earlier ones are forgotten; a day unless said.",
        Shape::Duration,
    ),
    field(
        "extended_by_refusals",
        "Lets each refusal during a block begin it anew.",
        Shape::Flag,
    ),
]);

pub(super) static QUOTA: Fields = Fields(&[
    field("limit", "How many units a period has.", Shape::Whole),
    field("per", "The period: \"minute\", \"10s\".", Shape::Text),
]);

pub(super) static LIMIT: Fields = Fields(&[
    field("limit", "How many units a period has.", Shape::Whole),
    field(
        "per",
        "The period; that of the policy unless said.",
        Shape::Text,
    ),
    field("burst", "The burst of a bucket.", Shape::Whole),
    field("capacity", "The capacity of a leaky bucket.", Shape::Whole),
    field("places", "The places of a leaky queue.", Shape::Whole),
]);

pub(super) static KEY: Fields = Fields(&[
    field("header", "The value of a header.", Shape::Text),
    field("cookie", "The value of a cookie, hashed.", Shape::Text),
    field("query", "The value of a query parameter.", Shape::Text),
    field(
        "metadata",
        "The value of a metadata key of a gRPC call.",
        Shape::Text,
    ),
    field(
        "api_key",
        "The API key in this header, hashed.",
        Shape::Text,
    ),
    field(
        "client_ip",
        "The address of the client.",
        Shape::Table(&CLIENT_IP),
    ),
    field("function", "A key that code has registered.", Shape::Text),
    field(
        "all_of",
        "Several keys as one.",
        Shape::List(&Shape::Named("key")),
    ),
    field(
        "first_of",
        "The first of them that the request has.",
        Shape::List(&Shape::Named("key")),
    ),
    field(
        "hashed",
        "A key as 128 bits of a keyed hash.",
        Shape::Named("key"),
    ),
]);

pub(super) static CLIENT_IP: Fields = Fields(&[
    field(
        "ipv6_prefix",
        "How many bits of an IPv6 address tell clients apart.",
        Shape::Whole,
    ),
    field(
        "unwrap_ipv4",
        "The prefixes of translators from IPv4 to IPv6.",
        Shape::List(&Shape::Text),
    ),
]);

pub(super) static FUNCTION: Fields =
    Fields(&[field("function", "What code has registered.", Shape::Text)]);

pub(super) static COST: Fields = Fields(&[
    field("cost", "How many units a request takes.", Shape::Whole),
    field(
        "method",
        "Of requests with one of these methods.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "path",
        "Of requests to one of these paths; `/bulk/*` is `/bulk` and all below it.",
        Shape::OneOrList(&Shape::Text),
    ),
]);

pub(super) static CONDITION: Fields = Fields(&[
    field(
        "method",
        "The method is one of these.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "path",
        "The path is one of these; `/api/*` is `/api` and all below it.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "header",
        "The request has these headers, with one of these values, or with any if it is true.",
        Shape::Map(&Shape::Any(&[Shape::Flag, Shape::OneOrList(&Shape::Text)])),
    ),
    field(
        "address",
        "The address of the client is in one of these networks.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "function",
        "A condition that code has registered holds.",
        Shape::Text,
    ),
    field(
        "not",
        "This does not hold. Of a list, none holds.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);

pub(super) static KEY_LIMITS: Fields = Fields(&[
    field(
        "keys",
        "The limits of single keys.",
        Shape::Map(&Shape::Named("limit")),
    ),
    field(
        "prefixes",
        "The limits of keys that begin so. The longest counts.",
        Shape::Map(&Shape::Named("limit")),
    ),
    field(
        "other",
        "The limit of all other keys.",
        Shape::Named("limit"),
    ),
    field(
        "keys_are",
        "What the keys of the table are: addresses for a key that is one, and text unless said.",
        Shape::Word(&["text", "number", "address"]),
    ),
]);

pub(super) static PLAN_OF: Fields = Fields(&[
    field(
        "header",
        "The plan is the value of this header.",
        Shape::Text,
    ),
    field(
        "from",
        "The networks of the gateways that set the header. It is not read from other peers.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "function",
        "The plan is what code has registered.",
        Shape::Text,
    ),
    field(
        "key",
        "The plan is that of this key in `plans`.",
        Shape::Named("key"),
    ),
    field("plans", "The plans of keys.", Shape::Map(&Shape::Text)),
]);

pub(super) static PROXIES: Fields = Fields(&[
    field(
        "networks",
        "The networks of the proxies.",
        Shape::OneOrList(&Shape::Text),
    ),
    field(
        "hops",
        "The number of proxies, in place of their networks.",
        Shape::Whole,
    ),
    field(
        "unix_socket",
        "Trusts the other end of a Unix socket.",
        Shape::Flag,
    ),
    field(
        "header",
        "The header in which they tell the address: x-forwarded-for, forwarded, or the name of a header with one value.",
        Shape::Text,
    ),
]);

pub(super) static LISTS: Fields = Fields(&[
    field(
        "exempt_paths",
        "Paths without a limit and without headers.",
        Shape::List(&Shape::Text),
    ),
    field(
        "allow",
        "Requests without a limit and without headers.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
    field(
        "deny",
        "Requests that get 403.",
        Shape::OneOrList(&Shape::Named("condition")),
    ),
]);

pub(super) const DIALECTS: &[&str] = &[
    "draft-11",
    "draft-07",
    "draft-06",
    "draft-03",
    "x-ratelimit",
    "x-ratelimit-millis",
    "x-ratelimit-epoch",
    "x-rate-limit",
    "x-rate-limit-millis",
    "x-rate-limit-epoch",
    "github",
];

pub(super) static RESPONSES: Fields = Fields(&[
    field(
        "dialects",
        "The headers that tell limits; draft-11 unless said. An empty list sends none.",
        Shape::List(&Shape::Word(DIALECTS)),
    ),
    field(
        "refusal_status",
        "The status of a refusal; 429 unless said.",
        Shape::Whole,
    ),
    field(
        "too_large_status",
        "The status of a refusal of a request that costs more than a policy ever admits, such as 413.",
        Shape::Whole,
    ),
    field(
        "refusal_body",
        "The body of a refusal: a word, or a text with its content type.",
        Shape::Any(&[
            Shape::Word(&["problem", "bare-problem", "json", "text"]),
            Shape::Table(&BODY),
        ]),
    ),
    field(
        "retry_jitter",
        "The most that is added to Retry-After, in whole seconds.",
        Shape::Duration,
    ),
    field(
        "without_headers_if_public",
        "Leaves the headers out of responses that shared caches may keep.",
        Shape::Flag,
    ),
    field(
        "partition_keys",
        "Tells the partition key of draft 11, hashed with the secret of the file.",
        Shape::Flag,
    ),
    field(
        "expose_decision",
        "Puts the decision into the extensions of each allowed request.",
        Shape::Flag,
    ),
]);

pub(super) static BODY: Fields = Fields(&[
    field("content_type", "The value of Content-Type.", Shape::Text),
    field("text", "The body.", Shape::Text),
]);

pub(super) static STORE: Fields = Fields(&[
    field(
        "max_keys",
        "How many keys the store in this process holds.",
        Shape::Whole,
    ),
    field("redis", "The URL of a server.", Shape::Named("secret")),
    field(
        "cluster",
        "The URLs of nodes of a cluster.",
        Shape::OneOrList(&Shape::Named("secret")),
    ),
    field(
        "sentinel",
        "A master behind Sentinel.",
        Shape::Table(&SENTINEL),
    ),
    field("prefix", "What all keys in Redis begin with.", Shape::Text),
    field(
        "deadline",
        "How long a call to Redis may take.",
        Shape::Duration,
    ),
    field(
        "remember_denials_for",
        "How long a denial is remembered in this process.",
        Shape::Duration,
    ),
    field(
        "slot_life",
        "How long a slot of a concurrency lasts in Redis that is not renewed; 15 seconds unless said.",
        Shape::Duration,
    ),
    field("nodes", "How many nodes share the store.", Shape::Whole),
]);

pub(super) static SENTINEL: Fields = Fields(&[
    field(
        "master",
        "The name or the URL of the master.",
        Shape::Named("secret"),
    ),
    field(
        "servers",
        "The URLs of the sentinels.",
        Shape::OneOrList(&Shape::Named("secret")),
    ),
]);

pub(super) static ENV: Fields = Fields(&[field(
    "env",
    "The environment variable that has the value.",
    Shape::Text,
)]);
