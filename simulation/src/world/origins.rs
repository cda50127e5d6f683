//! The hosts of the synthetic web in virtual time: what each answers, when, and what it has said about robots so far.
//!
//! [`Origins::ask`] decides an answer when the request goes out; [`Origins::delivered`] is called when it reached the node.
//! In between the layer keeps it. Pages are those of [`Web`]; faults of the plan are laid over them.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;

use super::clock::START_UNIX_MS;
use super::plan::{Fault, HostTrouble, MILLISECOND, Plan, RobotsTrouble, SECOND, TimedFault};
use super::random::{For, Random};
use super::trace::Host;
use super::web::{Answer, Delivery, Duty, Request, Visit, Web};

/// Path of the rules.
pub const ROBOTS_PATH: &str = "/robots.txt";
/// Time from request to answer, at least and at most, of hosts that are near, usual and far. The near ones answer within the
/// allowance for drifting clocks, so that it is needed; the far ones are in flight for long.
const ROUND_TRIP_US: [(u64, u64); 4] = [(500, 3_000), (10_000, 120_000), (10_000, 120_000), (300_000, 1_500_000)];
/// What a slow host takes longer, at least.
const SLOW_MIN: Micros = 500 * MILLISECOND;
/// Pages of a trap link to the next ones; a trap is this wide.
const TRAP_LINKS: u64 = 2;

/// What comes of a request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// When the last byte is there, or the failure is noticed. [`Micros::MAX`] if never: the client has to leave.
    pub at: Micros,
    /// What arrives.
    pub outcome: Outcome,
    /// The trouble of the host or of its robots.txt that made the answer, as an interesting situation.
    pub met: Option<&'static str>,
    rules: Option<Rules>,
}

impl Reply {
    /// Whether it is an answer for robots.txt after which nothing may be fetched: by the file, or because it could not be had.
    pub fn forbids_all(&self) -> bool {
        self.rules == Some(Rules::ForbidAll)
    }
}

/// What a client gets to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A whole answer.
    Answer(Box<Answered>),
    /// Nobody listens.
    Refused,
    /// The connection was reset, or ended too early.
    Reset,
    /// Nothing, or no end.
    Silence,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Status, headers and body. The body of a huge one is repeated as `delivery` says.
    pub answer: Answer,
    /// Bytes of the whole body.
    pub body_bytes: u64,
    /// Canonical URLs that a crawler keeps: the links of a page. A redirect's target is in the header.
    pub links: Vec<String>,
}

/// The rules that an answer for robots.txt stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    /// What the host usually has.
    Own,
    /// Everything is forbidden: by the file, or because it could not be had.
    ForbidAll,
}

#[derive(Default)]
struct HostState {
    /// Some node has read the rules that it usually has.
    heard: bool,
    visits: BTreeMap<String, u32>,
    requests: u64,
}

/// The hosts of a run.
pub struct Origins {
    seed: u64,
    web: Web,
    default_delay: Micros,
    slow_max: Micros,
    faults: Vec<TimedFault>,
    hosts: BTreeMap<Host, HostState>,
}

impl Origins {
    /// The hosts of a run of `plan`.
    pub fn new(plan: &Plan) -> Origins {
        let matters = |fault: &&TimedFault| matches!(fault.what, Fault::Host { .. } | Fault::Robots { .. });
        Origins {
            seed: plan.seed,
            web: Web::new(plan.web.clone()),
            default_delay: plan.cluster.crawl_delay_ms * MILLISECOND,
            // Around the time at which a client gives up.
            slow_max: (plan.cluster.fetch_timeout_ms * MILLISECOND * 6 / 5).max(SLOW_MIN),
            faults: plan.faults.iter().filter(matters).cloned().collect(),
            hosts: BTreeMap::new(),
        }
    }

    /// The web behind them.
    pub fn web(&self) -> &Web {
        &self.web
    }

    /// The host called `name`.
    pub fn host(&self, name: &str) -> Option<Host> {
        self.web.host_number(name)
    }

    /// Decides what comes of a GET of `path` on `host` that goes out at true time `at`.
    pub fn ask(&mut self, at: Micros, host: Host, path: &str) -> Reply {
        let is_robots = path == ROBOTS_PATH;
        let trouble = self.host_trouble(at, host);
        let robots = if is_robots { self.robots_trouble(at, host) } else { None };
        let web = self.web.clone();
        let state = self.hosts.entry(host).or_default();
        state.requests += 1;
        let mut draw = Random::at(self.seed, For::Host, u64::from(host), state.requests);
        let (least, most) = Random::at(self.seed, For::Host, u64::from(host), 0).pick(&ROUND_TRIP_US);
        let mut takes = draw.between(least, most);
        let slower = draw.between(SLOW_MIN, self.slow_max);
        if trouble == Some(HostTrouble::Slow) {
            takes += slower;
        }
        let rules = |rules| if is_robots { Some(rules) } else { None };
        let met = robots
            .map(robots_point)
            .or(trouble.filter(|trouble| !is_robots || reaches_robots(*trouble)).map(host_point));
        let failed = |outcome, at| Reply { at, outcome, met, rules: rules(Rules::ForbidAll) };
        if trouble == Some(HostTrouble::Down) || web.is_down(host) {
            return failed(Outcome::Refused, at + takes);
        }
        if trouble == Some(HostTrouble::Silent) {
            return failed(Outcome::Silence, Micros::MAX);
        }
        if robots == Some(RobotsTrouble::Unreachable) {
            return failed(Outcome::Reset, at + takes);
        }
        let visits = state.visits.entry(path.to_owned()).or_default();
        let visit = Visit { earlier: Some(*visits), epoch: 0, now_unix_s: (START_UNIX_MS + at / MILLISECOND) / 1_000 };
        *visits = visits.saturating_add(1);
        let mut links = Vec::new();
        let answer = match (is_robots, robots, trouble) {
            (true, Some(RobotsTrouble::ServerError), _) => Answer::error(500),
            (true, Some(RobotsTrouble::ForbidsAll), _) => {
                let mut answer = Answer::error(200);
                answer.body = "User-agent: *\nDisallow: /\n".into();
                answer
            }
            (false, _, Some(HostTrouble::ServerError)) => Answer::error(500),
            (false, _, Some(HostTrouble::Unavailable)) => retry_later(503, &web),
            (false, _, Some(HostTrouble::TooMany)) => retry_later(429, &web),
            (false, _, Some(HostTrouble::RedirectLoop)) => {
                let next = if path == "/round" { "/and-round" } else { "/round" };
                Answer::redirect(302, web.url(host, next))
            }
            _ => {
                let name = web.host_name(host);
                let answer = web.respond_as(host, &Request::get(&name, path), visit);
                if !is_robots && answer.status == 200 {
                    links = web.followed(host, path);
                }
                answer
            }
        };
        let mut answer = answer;
        if trouble == Some(HostTrouble::Trap) && !is_robots {
            trap(&web, host, path, &mut answer, &mut links);
        }
        if trouble == Some(HostTrouble::Huge) && !is_robots && answer.status == 200 {
            let times = (web.plan().huge_bytes as usize / answer.body.len().max(1)) as u32 + 1;
            answer = answer.delivered(Delivery::Repeated { times });
        }
        if robots == Some(RobotsTrouble::Huge) && answer.status == 200 {
            let mut body = answer.body.to_vec();
            body.resize(body.len() + 600 * 1_024, b'\n');
            answer.body = body.into();
        }
        let forbids = robots == Some(RobotsTrouble::ForbidsAll) || answer.status >= 500 || answer.status == 0;
        let rules = rules(if forbids { Rules::ForbidAll } else { Rules::Own });
        takes += u64::from(answer.delay_ms) * MILLISECOND;
        let (takes, outcome) = deliver(answer, takes, links);
        Reply { at: takes.map_or(Micros::MAX, |takes| at + takes), outcome, met, rules }
    }

    /// The answer to a request for `host` reached a node. The delay that a robots.txt asks for counts from here on.
    pub fn delivered(&mut self, host: Host, reply: &Reply) {
        self.hosts.entry(host).or_default().heard |= reply.rules == Some(Rules::Own);
    }

    /// Says whether the robots.txt that the host usually has allows `path`. Whoever asks must have read it, and nothing else since:
    /// that is judged by `robots_obeyed`.
    pub fn allows(&self, host: Host, path: &str) -> bool {
        path == ROBOTS_PATH || self.web.robots(host).duty(path) != Duty::Never
    }

    /// The pause between two requests to a host that has asked for none.
    pub fn least_delay(&self) -> Micros {
        self.default_delay
    }

    /// The pause that must be kept between two requests to a host: the cluster's own, and what the host has asked for.
    pub fn crawl_delay(&self, host: Host) -> Micros {
        let heard = self.hosts.get(&host).is_some_and(|state| state.heard);
        let declared = if heard { u64::from(self.web.crawl_delay_ms(host)) * MILLISECOND } else { 0 };
        self.default_delay.max(declared)
    }

    /// The canonical URL of a page that a client hands in.
    pub fn submission_url(&self, host: Host, page: u32) -> String {
        self.web.url(host, &self.web.page_path(host, page))
    }

    fn host_trouble(&self, at: Micros, host: Host) -> Option<HostTrouble> {
        self.faults.iter().filter(|fault| fault.lasts_at(at)).find_map(|fault| match fault.what {
            Fault::Host { host: which, trouble } if which == host => Some(trouble),
            _ => None,
        })
    }

    fn robots_trouble(&self, at: Micros, host: Host) -> Option<RobotsTrouble> {
        self.faults.iter().filter(|fault| fault.lasts_at(at)).find_map(|fault| match fault.what {
            Fault::Robots { host: which, trouble } if which == host => Some(trouble),
            _ => None,
        })
    }
}

/// Whether a host that is in trouble answers requests for its robots.txt otherwise, too.
fn reaches_robots(trouble: HostTrouble) -> bool {
    matches!(trouble, HostTrouble::Slow | HostTrouble::Silent | HostTrouble::Down)
}

fn host_point(trouble: HostTrouble) -> &'static str {
    match trouble {
        HostTrouble::Slow => "host_slow",
        HostTrouble::Silent => "host_silent",
        HostTrouble::Down => "host_down",
        HostTrouble::ServerError => "host_server_error",
        HostTrouble::Unavailable => "host_unavailable",
        HostTrouble::TooMany => "host_too_many",
        HostTrouble::RedirectLoop => "host_redirect_loop",
        HostTrouble::Trap => "host_trap",
        HostTrouble::Huge => "host_huge",
    }
}

fn robots_point(trouble: RobotsTrouble) -> &'static str {
    match trouble {
        RobotsTrouble::Unreachable => "robots_unreachable",
        RobotsTrouble::ServerError => "robots_server_error",
        RobotsTrouble::Huge => "robots_huge",
        RobotsTrouble::ForbidsAll => "robots_forbid_all",
    }
}

fn retry_later(status: u16, web: &Web) -> Answer {
    let mut answer = Answer::error(status);
    answer.header("retry-after", web.plan().retry_after_s.to_string());
    answer
}

/// Every page of a trap links to more of it, for as long as the fault lasts; afterwards they are 404.
fn trap(web: &Web, host: Host, path: &str, answer: &mut Answer, links: &mut Vec<String>) {
    let depth: u64 = match path.strip_prefix("/trap/") {
        Some(number) => number.parse().unwrap_or(0),
        None => 0,
    };
    if path.starts_with("/trap/") {
        *answer = Answer::error(200);
    }
    if answer.status == 200 {
        let mut body = answer.body.to_vec();
        for step in 1..=TRAP_LINKS {
            let next = web.url(host, &format!("/trap/{}", depth * TRAP_LINKS + step));
            body.extend_from_slice(format!("<a href=\"{next}\">more</a>\n").as_bytes());
            links.push(next);
        }
        answer.body = body.into();
    }
}

/// How long an answer takes on its way, and what of it arrives.
fn deliver(answer: Answer, takes: Micros, links: Vec<String>) -> (Option<Micros>, Outcome) {
    let length = answer.body.len() as u64;
    let whole = |answer: Answer, body_bytes| Outcome::Answer(Box::new(Answered { answer, body_bytes, links }));
    match answer.delivery {
        Delivery::Whole => (Some(takes), whole(answer, length)),
        Delivery::Drip { piece_bytes, pause_ms } => {
            let pieces = length.div_ceil(u64::from(piece_bytes.max(1)));
            (Some(takes + pieces * u64::from(pause_ms) * MILLISECOND), whole(answer, length))
        }
        // Ten megabytes a second.
        Delivery::Repeated { times } => {
            let bytes = length * u64::from(times);
            (Some(takes + bytes / 10), whole(answer, bytes))
        }
        Delivery::Endless | Delivery::Hang | Delivery::HangAfterHeaders => (None, Outcome::Silence),
        Delivery::Declared { .. } | Delivery::ResetAfterBody | Delivery::Reset | Delivery::Verbatim => {
            (Some(takes + SECOND / 100), Outcome::Reset)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(what: Option<Fault>) -> Plan {
        let mut plan = Plan::from_seed(1);
        plan.web.robots_variants = true;
        plan.web.hosts = 20;
        (plan.cluster.crawl_delay_ms, plan.web.delay_ms) = (200, 0);
        plan.faults = what.map(|what| TimedFault { id: 1, at_ms: 1_000, lasts_ms: 1_000, what }).into_iter().collect();
        plan
    }

    fn status(reply: &Reply) -> Option<u16> {
        match &reply.outcome {
            Outcome::Answer(answered) => Some(answered.answer.status),
            _ => None,
        }
    }

    #[test]
    fn a_page_comes_with_its_links_and_in_time() {
        let mut origins = Origins::new(&plan(None));
        let reply = origins.ask(5, 0, "/");
        assert_eq!(status(&reply), Some(200));
        assert!(reply.at > 5 && reply.at < 2 * SECOND);
        let Outcome::Answer(answered) = reply.outcome else { unreachable!() };
        assert!(!answered.links.is_empty());
        assert!(answered.links.iter().all(|link| link.starts_with("http://")));
    }

    #[test]
    fn a_host_allows_what_its_usual_rules_do() {
        let origins = Origins::new(&plan(None));
        let host =
            (0..20).find(|host| origins.web().robots(*host) == super::super::web::Robots::Private).expect("is there");
        assert!(origins.allows(host, "/") && origins.allows(host, ROBOTS_PATH));
        assert!(!origins.allows(host, "/private/x.html"));
    }

    #[test]
    fn a_reply_says_which_trouble_it_met() {
        let met = |what, path| Origins::new(&plan(Some(what))).ask(1_500_000, 0, path).met;
        let down = Fault::Host { host: 0, trouble: HostTrouble::Down };
        assert_eq!((met(down.clone(), "/"), met(down, ROBOTS_PATH)), (Some("host_down"), Some("host_down")));
        let error = Fault::Host { host: 0, trouble: HostTrouble::ServerError };
        assert_eq!((met(error.clone(), "/"), met(error, ROBOTS_PATH)), (Some("host_server_error"), None));
        let forbids = Fault::Robots { host: 0, trouble: RobotsTrouble::ForbidsAll };
        assert_eq!((met(forbids.clone(), "/"), met(forbids, ROBOTS_PATH)), (None, Some("robots_forbid_all")));
    }

    #[test]
    fn a_declared_delay_counts_once_it_was_heard() {
        let mut plan = plan(None);
        plan.web.crawl_delay_ms = 700;
        let mut origins = Origins::new(&plan);
        assert_eq!(origins.crawl_delay(0), 200 * MILLISECOND);
        let reply = origins.ask(0, 0, ROBOTS_PATH);
        origins.delivered(0, &reply);
        assert_eq!(origins.crawl_delay(0), 700 * MILLISECOND);
    }

    #[test]
    fn hosts_misbehave_while_the_fault_lasts() {
        let during = |trouble| {
            let mut origins = Origins::new(&plan(Some(Fault::Host { host: 0, trouble })));
            assert_eq!(status(&origins.ask(0, 0, "/")), Some(200));
            assert_eq!(status(&origins.ask(2_000_000, 0, "/")), Some(200));
            assert_eq!(status(&origins.ask(1_500_000, 1, "/")), Some(200));
            origins.ask(1_500_000, 0, "/")
        };
        assert_eq!(during(HostTrouble::Down).outcome, Outcome::Refused);
        assert_eq!(during(HostTrouble::Silent).at, Micros::MAX);
        assert_eq!(status(&during(HostTrouble::ServerError)), Some(500));
        assert_eq!(status(&during(HostTrouble::RedirectLoop)), Some(302));
        assert!(during(HostTrouble::Slow).at >= 1_500_000 + SLOW_MIN);
        for (trouble, expected) in [(HostTrouble::TooMany, 429), (HostTrouble::Unavailable, 503)] {
            let reply = during(trouble);
            assert_eq!(status(&reply), Some(expected));
            let Outcome::Answer(answered) = reply.outcome else { unreachable!() };
            assert!(answered.answer.header_value("retry-after").is_some());
        }
        let Outcome::Answer(trapped) = during(HostTrouble::Trap).outcome else { panic!("no answer") };
        assert!(trapped.links.iter().any(|link| link.ends_with("/trap/1")));
        let Outcome::Answer(huge) = during(HostTrouble::Huge).outcome else { panic!("no answer") };
        assert!(huge.body_bytes >= u64::from(plan(None).web.huge_bytes));
    }

    #[test]
    fn a_trap_goes_on_and_ends_with_its_fault() {
        let mut origins = Origins::new(&plan(Some(Fault::Host { host: 0, trouble: HostTrouble::Trap })));
        let Outcome::Answer(deep) = origins.ask(1_500_000, 0, "/trap/2").outcome else { panic!("no answer") };
        assert!(deep.links.iter().any(|link| link.ends_with("/trap/5")));
        assert_eq!(status(&origins.ask(2_500_000, 0, "/trap/2")), Some(404));
    }

    #[test]
    fn rules_that_cannot_be_had_or_forbid_all_are_told_apart() {
        for trouble in [RobotsTrouble::Unreachable, RobotsTrouble::ServerError, RobotsTrouble::ForbidsAll] {
            let mut origins = Origins::new(&plan(Some(Fault::Robots { host: 0, trouble })));
            assert!(origins.ask(1_500_000, 0, ROBOTS_PATH).forbids_all());
            assert!(!origins.ask(2_500_000, 0, ROBOTS_PATH).forbids_all());
            assert!(!origins.ask(1_500_000, 0, "/").forbids_all());
        }
        let mut origins = Origins::new(&plan(Some(Fault::Robots { host: 0, trouble: RobotsTrouble::Huge })));
        let reply = origins.ask(1_500_000, 0, ROBOTS_PATH);
        let Outcome::Answer(answered) = &reply.outcome else { panic!("no answer") };
        assert!(answered.body_bytes > 500 * 1_024);
        assert!(!reply.forbids_all());
    }
}
