//! The fields of a policy.

use super::adapt::{CLASS, CLASSES};
use super::limits::{KEY_LIMITS, QUOTA};
use crate::config::costs::COST;
use crate::config::endings::{ENDING, SETTLE, SETTLE_WORDS};
use crate::config::terms::{HEAVIEST_KEYS, PENALTY};
use crate::config::vocabulary::FUNCTION;
use crate::config::vocabulary::{Shape, Vocabulary, field};

pub(crate) static POLICY: Vocabulary<()> = Vocabulary(&[
    field(
        "algorithm",
        "The name of an algorithm, or its whole text; the default is anchored-window.",
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
        "How many units a request takes; the default is 1.",
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
        "What happens while the store cannot decide; the default is local.",
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
        "unleased",
        "Has the store decide on each request, where it leases units to nodes.",
        Shape::Flag,
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
        "heaviest_keys",
        "The number of heaviest keys in a snapshot; the default is none.",
        Shape::Any(&[Shape::Whole, Shape::Table(&HEAVIEST_KEYS)]),
    ),
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
        "The source of the real cost of a request. Of a list, the first source that has it counts.",
        Shape::OneOrList(&Shape::Any(&[
            Shape::Word(&SETTLE_WORDS),
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
        "The cost of a request that ends without an answer; the default is estimate.",
        Shape::Any(&[Shape::Word(&["estimate", "nothing"]), Shape::Whole]),
    ),
    field(
        "limit_by",
        "Gives the limit of a request, before the limits by key.",
        Shape::Table(&FUNCTION),
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
        "When a day of a calendar begins: \"06:00\"; the default is midnight.",
        Shape::Text,
    ),
    field(
        "first_day",
        "On which day a calendar-week begins; the default is monday.",
        Shape::Word(&WEEKDAYS),
    ),
    field(
        "adapt",
        "Lets the limit follow the load, as the table `adapt` of the file says.",
        Shape::Flag,
    ),
    field(
        "class",
        "The importance of requests under load; the default is critical. Of a list, the first that holds.",
        Shape::OneOrList(&Shape::Any(&[Shape::Word(&CLASSES), Shape::Table(&CLASS)])),
    ),
]);

pub(crate) static HOURS: Vocabulary<()> = Vocabulary(&[
    field("zone", "The time zone: \"Europe/London\".", Shape::Text),
    field(
        "limits",
        "Under each interval, such as \"22:00-06:00\", its limit, or a share of the limit: \"2 times\".",
        Shape::Map(&Shape::Named("limit")),
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
