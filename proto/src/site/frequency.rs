//! The property HTTP_FREQ_LIMITS: how many requests a host may get, and when.
//!
//! ```text
//! {"max": 10, "period": 60}                                                     ten a minute
//! [{"max": 60, "period": 60}, {"from": "08:00", "to": "18:00", "max": 0}]       one a second, and none by day
//! {"shop\\.example": {"max": 1, "period": 5}, "": {"max_freq": 0.5}}            by host, also as the original writes it
//! ```
//! Requests are spread evenly: ten a minute are one in six seconds. Times are of the day in UTC, and a window may go over midnight. All limits that are for a
//! host and a moment count, so the strictest. In a window of none nothing is asked for; URLs wait, and no error is noted with them.
//!
//! A hundred a day are one in 864 seconds, which is no delay any more that somebody could wait out after each start: so long a time is a *turn* of the wall clock,
//! counted from midnight of 1970-01-01, and a host gets one page in each. Whoever cannot know what was asked for in a turn, because it began to ask in its middle,
//! waits for the next; so a host gets no more than it should however often nodes start or hand it over, and something in each turn that a node sees from its beginning.
//!
//! What is allowed in a window is spread over the window: six a day between eight and twelve are one in forty minutes, counted from eight. Of a period that is longer
//! than the window only the time counts in which it is open; if that comes to less than one in each window, a turn is so many days.

use regex::Regex;
use serde_json::{Map, Value as Json};

use super::Site;
use super::operation::BadRequest;

/// Name of the property.
const NAME: &str = "HTTP_FREQ_LIMITS";
/// Limits of one site.
const LIMITS_MAX: usize = 64;
const MINUTES_OF_DAY: u64 = 24 * 60;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = MINUTES_OF_DAY * MINUTE_MS;
/// A limit of less than one request in this time is a mistake, milliseconds.
const TURN_MAX_MS: u64 = 31 * 24 * 60 * MINUTE_MS;
/// Fields of a limit; those of the original that say how its processes wait are read and have no meaning here.
const FIELDS: [&str; 8] = ["max", "period", "max_freq", "from", "to", "host", "max_delay", "randomized"];
/// Where the original kept its counts.
const ELSEWHERE: &str = "PATH_CONFIG";

/// What limits say of a host at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The least time between two requests, milliseconds.
    pub delay_ms: u64,
    /// The turn in which the host gets one page, if it goes by turns now.
    pub turn: Option<Turn>,
    /// Nothing may be asked for until then, Unix milliseconds.
    pub closed_until: Option<u64>,
}

/// A time of the wall clock in which a host gets one page, Unix milliseconds; the end is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it began.
    pub begin: u64,
    /// When it ends.
    pub end: u64,
}

/// All limits of a site.
#[derive(Clone, Debug, Default)]
pub struct Frequencies(Vec<Limit>);

#[derive(Clone, Debug)]
struct Limit {
    /// For which hosts; `None` for all.
    hosts: Option<Regex>,
    /// When, in minutes of the day; `None` for always.
    window: Option<Window>,
    /// `None`: nothing may be asked for.
    delay_ms: Option<u64>,
}

/// From one minute of the day to another, the last one not included.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: u64,
    to: u64,
}

impl Window {
    /// Minutes of the day until it ends, if it is open at this one.
    fn left(self, minute: u64) -> Option<u64> {
        let since = (minute + MINUTES_OF_DAY - self.from) % MINUTES_OF_DAY;
        (since < self.length()).then(|| self.length() - since)
    }

    /// Minutes for which it is open.
    fn length(self) -> u64 {
        (self.to + MINUTES_OF_DAY - self.from) % MINUTES_OF_DAY
    }

    /// Milliseconds of a period in which it is open, at the most.
    fn open_ms(self, period_ms: u64) -> u64 {
        let open = self.length() * MINUTE_MS;
        (period_ms / DAY_MS).saturating_mul(open).saturating_add((period_ms % DAY_MS).min(open))
    }
}

impl Site {
    /// The limits that its property says; none without it.
    pub fn frequencies(&self) -> Result<Frequencies, BadRequest> {
        let Some(text) = self.property(NAME).map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(Frequencies::default());
        };
        let bad = |what: String| BadRequest::new(&format!("properties[{NAME}]"), what);
        let json: Json = serde_json::from_str(text).map_err(|error| bad(format!("no JSON: {error}")))?;
        Frequencies::read(&json).map_err(bad)
    }
}

impl Frequencies {
    fn read(json: &Json) -> Result<Frequencies, String> {
        let example = "it looks like {\"max\": 10, \"period\": 60}, requests and seconds, or a list of those";
        let limits: Result<Vec<Limit>, String> = match json {
            Json::Array(list) => list
                .iter()
                .enumerate()
                .map(|(at, one)| match one {
                    Json::Object(fields) => Limit::read(fields, None).map_err(|what| format!("[{at}].{what}")),
                    _ => Err(format!("[{at}] is no object; {example}")),
                })
                .collect(),
            Json::Object(by_host) if by_host.values().any(Json::is_object) => by_host
                .iter()
                .filter(|(host, _)| *host != ELSEWHERE)
                .map(|(host, one)| match one {
                    Json::Object(fields) => {
                        Limit::read(fields, Some(host.as_str())).map_err(|what| format!("[{host}].{what}"))
                    }
                    _ => Err(format!("[{host}] is no object; {example}")),
                })
                .collect(),
            Json::Object(one) => Limit::read(one, None).map(|limit| vec![limit]),
            _ => Err(example.to_owned()),
        };
        let limits = limits?;
        if limits.is_empty() || limits.len() > LIMITS_MAX {
            return Err(format!("{} limits: from 1 to {LIMITS_MAX}", limits.len()));
        }
        Ok(Frequencies(limits))
    }

    /// Whether there is anything to keep to.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they say of a host at a moment; times between two requests that are longer than `delay_max_ms` are turns.
    pub fn allow(&self, host: &str, unix_ms: u64, delay_max_ms: u64) -> Allowed {
        let minute = unix_ms / MINUTE_MS % MINUTES_OF_DAY;
        let mut allowed = Allowed::default();
        for limit in self.0.iter().filter(|limit| limit.hosts.as_ref().is_none_or(|hosts| hosts.is_match(host))) {
            let left = match limit.window.map(|window| window.left(minute)) {
                Some(None) => continue,
                Some(Some(left)) => left,
                None => MINUTES_OF_DAY,
            };
            match limit.delay_ms {
                Some(turn_ms) if turn_ms > delay_max_ms => {
                    let turn = limit.turn(unix_ms, turn_ms);
                    let length = |turn: &Turn| turn.end - turn.begin;
                    allowed.turn = Some(allowed.turn.filter(|other| length(other) >= length(&turn)).unwrap_or(turn));
                }
                Some(delay_ms) => allowed.delay_ms = allowed.delay_ms.max(delay_ms),
                None => {
                    let end = (unix_ms / MINUTE_MS + left) * MINUTE_MS;
                    allowed.closed_until = allowed.closed_until.max(Some(end));
                }
            }
        }
        allowed
    }
}

impl Limit {
    /// The turn of so many milliseconds in which a moment is; a window has its own, of which the first begins with it and the last ends with it.
    fn turn(&self, unix_ms: u64, turn_ms: u64) -> Turn {
        let Some((window, left)) = self.window.and_then(|window| {
            let left = window.left(unix_ms / MINUTE_MS % MINUTES_OF_DAY)?;
            Some((window, left))
        }) else {
            let begin = unix_ms / turn_ms * turn_ms;
            return Turn { begin, end: begin.saturating_add(turn_ms) };
        };
        let (length, end) = (window.length() * MINUTE_MS, (unix_ms / MINUTE_MS + left) * MINUTE_MS);
        let opened = end.saturating_sub(length);
        if turn_ms <= length {
            let begin = opened + (unix_ms - opened.min(unix_ms)) / turn_ms * turn_ms;
            return Turn { begin, end: (begin + turn_ms).min(end) };
        }
        let days = turn_ms.div_ceil(length);
        let begin = opened.saturating_sub(opened / DAY_MS % days * DAY_MS);
        Turn { begin, end: begin.saturating_add(days.saturating_mul(DAY_MS)) }
    }

    fn read(fields: &Map<String, Json>, host: Option<&str>) -> Result<Limit, String> {
        if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            return Err(format!("{unknown}: is not known; there are {}", FIELDS[..6].join(", ")));
        }
        let window = match (minute(fields, "from")?, minute(fields, "to")?) {
            (None, None) => None,
            (Some(from), Some(to)) if from != to => Some(Window { from, to }),
            (Some(_), Some(_)) => return Err("to: a window that ends when it begins is none".to_owned()),
            (Some(_), None) => return Err("to: is missing: when the window ends".to_owned()),
            (None, Some(_)) => return Err("from: is missing: when the window begins".to_owned()),
        };
        let whole = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or_else(|| format!("{name}: {value} is no whole number")),
        };
        // So many in so many milliseconds.
        let limit = match (whole("max")?, whole("period")?, fields.get("max_freq")) {
            (Some(0), _, None) if window.is_some() => None,
            (Some(0), _, None) => {
                return Err(
                    "max: 0 at all times; `state` 3 suspends a site, and a window closes it for a while".to_owned()
                );
            }
            (Some(max), Some(period), None) if period > 0 => Some((max, period.saturating_mul(1_000))),
            (Some(_), _, None) => {
                return Err("period: is missing: seconds in which so many requests are allowed".to_owned());
            }
            (None, None, Some(rate)) => {
                let rate = number(rate).filter(|rate| *rate >= 1e-6);
                let rate = rate.ok_or("max_freq: requests a second, more than 0")?;
                Some((1, (1_000.0 / rate).ceil() as u64)) // a cast from float saturates
            }
            _ => return Err("max: is missing: requests in `period` seconds, or `max_freq` a second".to_owned()),
        };
        if limit.is_some_and(|(max, period_ms)| period_ms.div_ceil(max) > TURN_MAX_MS) {
            let days = TURN_MAX_MS / (MINUTES_OF_DAY * MINUTE_MS);
            return Err(format!("max: less than one request in {days} days; `state` 3 suspends a site"));
        }
        let delay_ms = limit.map(|(max, period_ms)| {
            let open_ms = window.map_or(period_ms, |window| window.open_ms(period_ms));
            open_ms.div_ceil(max)
        });
        let named = match fields.get("host") {
            None => host,
            Some(Json::String(name)) => Some(name.as_str()),
            Some(other) => return Err(format!("host: {other} is no text")),
        };
        let hosts = match named.filter(|pattern| !pattern.is_empty()) {
            None => None,
            // From its beginning on, as the original looks for it.
            Some(pattern) => Some(Regex::new(&format!("^(?:{pattern})")).map_err(|error| {
                let why = error.to_string();
                format!("host: {}", why.lines().last().unwrap_or("is no regular expression"))
            })?),
        };
        Ok(Limit { hosts, window, delay_ms })
    }
}

/// Numbers may be written as texts, as in the original.
fn number(json: &Json) -> Option<f64> {
    match json {
        Json::Number(number) => number.as_f64(),
        Json::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|number| number.is_finite())
}

/// A time of the day in minutes: `08:30`, `24:00` for its end.
fn minute(fields: &Map<String, Json>, name: &str) -> Result<Option<u64>, String> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let parsed = value.as_str().and_then(|text| {
        let (hours, minutes) = text.trim().split_once(':')?;
        let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        let (hours, minutes): (u64, u64) = (
            Some(hours).filter(|part| digits(part))?.parse().ok()?,
            Some(minutes).filter(|part| digits(part))?.parse().ok()?,
        );
        let at = hours * 60 + minutes;
        (minutes < 60 && at <= MINUTES_OF_DAY).then_some(at % MINUTES_OF_DAY)
    });
    parsed.map(Some).ok_or_else(|| format!("{name}: {value} is no time of the day; \"08:30\" is"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn site(value: Json) -> Result<Site, BadRequest> {
        let list = json!([{"name": NAME, "value": value}]);
        Site::read(json!({"id": "a", "urls": ["http://a.example/"], "properties": list}))
    }

    fn limits(value: Json) -> Frequencies {
        site(value.clone()).unwrap_or_else(|bad| panic!("{value}: {bad}")).frequencies().unwrap()
    }

    const DELAY_MAX: u64 = 300_000;

    fn at(hours: u64, minutes: u64) -> u64 {
        (20_000 * MINUTES_OF_DAY + hours * 60 + minutes) * MINUTE_MS + 7
    }

    #[test]
    fn a_frequency_is_a_delay() {
        let fast = limits(json!({"max": 10, "period": 60}));
        assert_eq!(fast.allow("a.example", at(3, 0), DELAY_MAX), Allowed { delay_ms: 6_000, ..Allowed::default() });
        let old = limits(
            json!({"a\\.example": {"max_freq": "0.5", "max_delay": 10, "randomized": 1}, "PATH_CONFIG": "/tmp"}),
        );
        let delay_ms = |host: &str| old.allow(host, 0, DELAY_MAX).delay_ms;
        assert_eq!((delay_ms("a.example"), delay_ms("b.a.example")), (2_000, 0));
        assert!(Site::read(json!({"id": "a"})).unwrap().frequencies().unwrap().is_empty());
    }

    #[test]
    fn what_is_longer_than_any_delay_is_a_turn() {
        let allow = |value: Json| limits(value).allow("a.example", at(9, 0), DELAY_MAX);
        let turn_ms = |allowed: Allowed| allowed.turn.map_or(0, |turn| turn.end - turn.begin);
        let daily = allow(json!({"max": 100, "period": 86_400}));
        let begin = at(9, 0) / 864_000 * 864_000;
        assert_eq!(daily, Allowed { turn: Some(Turn { begin, end: begin + 864_000 }), ..Allowed::default() });
        assert_eq!(allow(json!({"max": 1, "period": 300})), Allowed { delay_ms: 300_000, ..Allowed::default() });
        let both = json!([{"max": 6, "period": 60}, {"max": 100, "period": 86_400}, {"max": 24, "period": 86_400}]);
        let both = allow(both);
        assert_eq!((both.delay_ms, turn_ms(both), both.closed_until), (10_000, 3_600_000, None));
        let by_day = json!({"from": "10:00", "to": "18:00", "max": 8, "period": 86_400});
        assert_eq!(allow(by_day), Allowed::default(), "not at this time");
        assert_eq!(turn_ms(allow(json!({"max_freq": 0.000_5}))), 2_000_000);
        assert_eq!(turn_ms(allow(json!({"max": 1, "period": 31 * 86_400}))), TURN_MAX_MS);
    }

    /// The turns that a limit gives a host in so many days from a midnight on, minute by minute, and the minutes in which nothing is limited left out.
    fn turns(value: Json, days: u64) -> Vec<(u64, u64)> {
        let limits = limits(value);
        let minutes = (0..days * MINUTES_OF_DAY).map(|minute| at(0, minute));
        let mut turns: Vec<(u64, u64)> = minutes
            .filter_map(|now| limits.allow("a.example", now, DELAY_MAX).turn.map(|turn| (now, turn)))
            .inspect(|(now, turn)| assert!(turn.begin <= *now && *now < turn.end, "{now} {turn:?}"))
            .map(|(_, turn)| (turn.begin, turn.end))
            .collect();
        turns.dedup();
        assert!(turns.windows(2).all(|two| two[0].1 <= two[1].0), "turns come one after the other: {turns:?}");
        turns
    }

    #[test]
    fn so_many_a_day_in_a_window_are_so_many_in_the_window() {
        for max in [1, 5, 6, 7, 47] {
            let daily = turns(json!({"from": "08:00", "to": "12:00", "max": max, "period": 86_400}), 3);
            assert_eq!(daily.len() as u64, 3 * max, "{max} a day");
            assert_eq!((daily[0].0, daily[max as usize - 1].1), (at(8, 0) - 7, at(12, 0) - 7));
        }
        let night = turns(json!({"from": "22:00", "to": "02:00", "max": 4, "period": 86_400}), 4);
        let opened_late = night.iter().filter(|(begin, _)| *begin >= at(2, 0)).count();
        assert_eq!(opened_late, 3 * 4 + 2, "three nights, and half of the fourth");
        // A period shorter than the window is what it says; one of two days gives each second window a page.
        assert_eq!(turns(json!({"from": "08:00", "to": "12:00", "max": 1, "period": 3_600}), 1).len(), 4);
        assert_eq!(turns(json!({"from": "08:00", "to": "12:00", "max": 1, "period": 2 * 86_400}), 6).len(), 3);
        let few = limits(json!({"from": "08:00", "to": "12:00", "max": 144, "period": 86_400}));
        assert_eq!(few.allow("a.example", at(9, 0), DELAY_MAX), Allowed { delay_ms: 100_000, ..Allowed::default() });
    }

    #[test]
    fn windows_slow_a_host_down_or_close_it_also_over_midnight() {
        let said = json!([
            {"max": 60, "period": 60},
            {"from": "08:00", "to": "18:30", "max": 1, "period": 10},
            {"from": "22:00", "to": "06:00", "max": 0, "host": "night"},
        ]);
        let limits = limits(said);
        let night = |hours: u64, minutes: u64| limits.allow("night.example", at(hours, minutes), DELAY_MAX);
        assert_eq!(night(7, 59), Allowed { delay_ms: 1_000, ..Allowed::default() });
        assert_eq!(night(8, 0).delay_ms, 10_000, "the strictest counts");
        assert_eq!(night(18, 30).delay_ms, 1_000);
        let end = |hours: u64, minutes: u64| night(hours, minutes).closed_until;
        assert_eq!((end(21, 59), end(22, 0)), (None, Some(at(30, 0) - 7)));
        assert_eq!((end(5, 59), end(6, 0)), (Some(at(6, 0) - 7), None));
        assert_eq!(limits.allow("day.example", at(23, 0), DELAY_MAX).closed_until, None);
        let all_day = Window { from: 0, to: 0 };
        assert_eq!(all_day.left(5), None, "it is refused when it is read");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
        for (value, word) in [
            (json!(10), "it looks like"),
            (json!("nonsense"), "no JSON"),
            (json!({}), "max: is missing"),
            (json!([]), "0 limits"),
            (json!([7]), "[0] is no object"),
            (json!({"max": 0, "period": 60}), "max: 0"),
            (json!({"max": 1, "period": 31 * 86_400 + 1}), "31 days"),
            (json!({"max": 1, "period": u64::MAX}), "31 days"),
            (json!({"max": 1}), "period: is missing"),
            (json!({"max": 1, "period": 0}), "period"),
            (json!({"max": -1, "period": 60}), "max: -1"),
            (json!({"max": 1, "period": 60, "x": 1}), "x: is not known"),
            (json!([{"max": 1, "period": 60}, {"max": 0, "from": "08:00"}]), "[1].to: is missing"),
            (json!({"max": 0, "to": "08:00"}), "from: is missing"),
            (json!({"max": 0, "from": "08:00", "to": "08:00"}), "to: a window"),
            (json!({"max": 0, "from": "8", "to": "25:00"}), "from: \"8\""),
            (json!({"max": 0, "from": "08:00", "to": "24:01"}), "to: \"24:01\""),
            (json!({"(": {"max": 1, "period": 1}}), "[(].host"),
            (json!({"a": {"max_freq": 0}}), "[a].max_freq"),
            (json!({"a": {"max": 1, "period": 1}, "b": 3}), "[b] is no object"),
        ] {
            let bad = site(value.clone()).unwrap_err().to_string();
            assert!(bad.contains(NAME) && bad.contains(word), "{value}: {bad}");
        }
    }
}
