//! Hours and calendar windows in a file.

use http::Request;
use tower_ratelimit_config::Config;

use crate::scene::{config, get, mistakes, told};

const POLICY: &str = "[policies.a]\nkey = \"global\"\nquota = \"10/minute\"\n";

/// Returns the explanation of a request at this time.
fn explained(config: &Config, at: &str) -> String {
    let request = Request::get("/").body(()).unwrap();
    let explained = config.explain_at(&request, None, None, at).unwrap();
    explained.to_string()
}

#[test]
fn each_time_has_the_limit_and_the_line_of_its_interval() {
    let config = config(&format!(
        "{POLICY}[policies.a.hours]\nzone = \"Europe/Berlin\"\n[policies.a.hours.limits]\n\
         \"22:00-06:00\" = \"20/minute\"\n\
         \"2026-12-24 06:00-22:00\" = 5\n\
         \"saturday,sunday 06:00-22:00\" = \"1.5 times\"\n",
    ));
    for (at, told) in [
        (
            "2026-11-20T21:59",
            "a  anchored-window 10/minute  policy  line 3\n",
        ),
        (
            "2026-11-20T22:00",
            "a  anchored-window 20/minute  hours 22:00-06:00  line 7\n",
        ),
        (
            "2026-11-21T05:59:59.999999",
            "a  anchored-window 20/minute  hours 22:00-06:00  line 7\n",
        ),
        (
            "2026-11-21T06:00",
            "a  anchored-window 15/minute  policy, hours saturday,sunday 06:00-22:00  line 3, line 9\n",
        ),
        (
            "2026-12-24T12:00",
            "a  anchored-window 5/minute  hours 2026-12-24 06:00-22:00  line 8\n",
        ),
        // There is no such time: the clocks go from 02:00 to 03:00.
        (
            "2026-03-29T02:30",
            "a  anchored-window 20/minute  hours 22:00-06:00  line 7\n",
        ),
    ] {
        assert_eq!(explained(&config, at), told, "{at}");
    }
    let request = Request::get("/").body(()).unwrap();
    let error = config
        .explain_at(&request, None, None, "tomorrow")
        .unwrap_err();
    assert_eq!(error.field(), "at");
}

/// An interval with a limit replaces the policy's own limit, also if a plan repeats it, and no other limit.
#[test]
fn of_a_plan_and_an_interval_the_line_that_decides_is_told() {
    let config = config(
        "default_plan = \"free\"\nplan_of = { header = \"x-plan\", from = \"10.0.0.0/8\" }\n[policies.a]\nkey = \"global\"\n\
         quota = \"10/minute\"\n[policies.a.hours]\nzone = \"UTC\"\n[policies.a.hours.limits]\n\"22:00-06:00\" = 20\n\
         \"06:00-08:00\" = \"2 times\"\n[plans.free]\na = 10\n[plans.pro]\na = 100\n",
    );
    let request = Request::get("/").body(()).unwrap();
    for (plan, time, told) in [
        ("free", "12:00", "10/minute  plan free  line 12"),
        ("free", "23:00", "20/minute  hours 22:00-06:00  line 9"),
        (
            "free",
            "07:00",
            "20/minute  plan free, hours 06:00-08:00  line 12, line 10",
        ),
        ("pro", "12:00", "100/minute  plan pro  line 14"),
        ("pro", "23:00", "100/minute  plan pro  line 14"),
        (
            "pro",
            "07:00",
            "200/minute  plan pro, hours 06:00-08:00  line 14, line 10",
        ),
    ] {
        let at = format!("2026-11-20T{time}");
        let explained = config.explain_at(&request, None, Some(plan), &at).unwrap();
        let expected = format!("a  anchored-window {told}\n");
        assert_eq!(explained.to_string(), expected, "{plan} {time}");
    }
    assert_eq!(config.plans().collect::<Vec<_>>(), ["free", "pro"]);
}

#[test]
fn a_time_that_the_clocks_skip_is_that_at_which_they_go_on() {
    let config = config(&format!(
        "{POLICY}hours = {{ zone = \"Europe/Berlin\", limits = {{ \"02:00-03:00\" = 1, \"03:00-04:00\" = 2 }} }}",
    ));
    assert_eq!(
        explained(&config, "2026-03-29T02:30"),
        "a  anchored-window 2/minute  hours 03:00-04:00  line 4\n"
    );
}

#[test]
fn responses_tell_the_limit_in_force() {
    let config = config(&format!(
        "{POLICY}hours = {{ zone = \"UTC\", limits = {{ \"00:00-24:00\" = \"2 times\" }} }}",
    ));
    assert_eq!(told(&config, get("/")), "\"a\";q=20;w=60");
}

#[test]
fn overlapping_hours_name_both_lines() {
    let text = format!(
        "{POLICY}[policies.a.hours]\nzone = \"Europe/Berlin\"\n[policies.a.hours.limits]\n\
         \"22:00-06:00\" = 5\n\"monday\" = 7\n\"05:00-07:00\" = 8\n",
    );
    assert_eq!(
        mistakes(&text),
        [
            "<text>:8:1: policies.a.hours.limits.monday: it overlaps \"22:00-06:00\" (line 7); let no moment be in both",
            "<text>:9:1: policies.a.hours.limits.\"05:00-07:00\": it overlaps \"22:00-06:00\" (line 7); let no moment be in \
             both",
        ]
    );
}

#[test]
fn all_mistakes_of_hours_are_told_at_once() {
    let text = format!(
        "{POLICY}[policies.a.hours]\nzone = \"Europe/Lodnon\"\n[policies.a.hours.limits]\n\
         \"22-06\" = 5\n\"sunday\" = \"5/hour\"\n\"monday\" = \"0 times\"\n\"tuesday\" = \"unlimited\"\n\"sunday 01:00-02:00\" = 7\n",
    );
    let found = mistakes(&text);
    let begins = [
        "<text>:5:8: policies.a.hours.zone: ",
        "<text>:7:1: policies.a.hours.limits.22-06: ",
        "<text>:8:12: policies.a.hours.limits.sunday: \"5/hour\" is of another kind or period",
        "<text>:9:12: policies.a.hours.limits.monday: \"0 times\" is not a share of a limit",
        "<text>:10:13: policies.a.hours.limits.tuesday: an interval has a limit",
        "<text>:11:1: policies.a.hours.limits.\"sunday 01:00-02:00\": it overlaps \"sunday\" (line 8)",
    ];
    assert_eq!(found.len(), begins.len(), "{found:#?}");
    for (found, begins) in found.iter().zip(begins) {
        assert!(found.starts_with(begins), "{found}");
    }
}

#[test]
fn hours_without_an_interval_or_a_zone_are_a_mistake() {
    for (hours, says) in [
        ("{ zone = \"UTC\", limits = {} }", "there is no interval"),
        ("{ zone = \"UTC\" }", "`limits` is missing"),
        ("{ limits = { sunday = 5 } }", "`zone` is missing"),
        (
            "{ zone = \"UTC\", limits = { sunday = 5 }, first = 1 }",
            "field \"first\" is unknown",
        ),
    ] {
        let found = mistakes(&format!("{POLICY}hours = {hours}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(says), "{found:?}");
    }
}

#[test]
fn a_calendar_window_has_a_limit_and_a_zone() {
    let calendar = |says: &str| format!("[policies.a]\nkey = \"global\"\n{says}");
    let all = "algorithm = \"calendar-week\"\nlimit = 100\nzone = \"UTC\"\nstart = \"06:00\"\nfirst_day = \"sunday\"";
    assert_eq!(
        config(&calendar(all)).understood().to_string(),
        "a  calendar-week 100 zone UTC start 06:00 first-day sunday  policy  line 4\n"
    );
    for (says, remedy) in [
        (
            "algorithm = \"calendar-day\"\nlimit = 100",
            "`zone` is missing",
        ),
        (
            "algorithm = \"calendar-day\"\nzone = \"UTC\"",
            "`limit` is missing",
        ),
        (
            "algorithm = \"calendar-day\"\nlimit = 1\nzone = \"UTC\"\nper = \"day\"",
            "calendar-day has no `per`",
        ),
        (
            "algorithm = \"calendar-day\"\nlimit = 1\nzone = \"UTC\"\nfirst_day = \"sunday\"",
            "a week alone has a first day",
        ),
        (
            "algorithm = \"calendar-day\"\nlimit = 1\nzone = \"U T C\"",
            "one word",
        ),
        (
            "quota = \"1/day\"\nzone = \"UTC\"",
            "anchored-window has no `zone`",
        ),
    ] {
        let found = mistakes(&calendar(says));
        assert_eq!(found.len(), 1, "{says}: {found:?}");
        assert!(found[0].contains(remedy), "{found:?}");
    }
}

/// Each interval is compared with all before it, and a date with all dates of another.
#[test]
fn a_file_with_too_many_intervals_or_dates_is_read_at_once() {
    let dates: Vec<String> = (0..30_000)
        .map(|day| {
            format!(
                "{:04}-{:02}-{:02}",
                2000 + day / 336,
                day / 28 % 12 + 1,
                day % 28 + 1
            )
        })
        .collect();
    let limits = |limits: &str| {
        format!("{POLICY}[policies.a.hours]\nzone = \"UTC\"\n[policies.a.hours.limits]\n{limits}")
    };
    let each: Vec<String> = dates
        .iter()
        .map(|date| format!("\"{date}\" = 5\n"))
        .collect();
    let each = each.concat();
    assert_eq!(
        mistakes(&limits(&each)),
        ["<text>:6:1: policies.a.hours.limits: there are more than 255 intervals"]
    );
    let dates = dates.join(",");
    config(&limits(&format!(
        "\"{dates} 00:00-12:00\" = 5\n\"{dates} 12:00-24:00\" = 6\n"
    )));
}
