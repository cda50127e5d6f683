//! Domain temperature: how much of a domain was handed out lately, and whether more of it may be.
//!
//! Every page that is handed out makes its domain warmer by 1; by itself it cools, to 1/e of what it was in each window. A domain that is served whenever it
//! is cooler than `limit` is served every `window · ln((limit + 1) / limit)` seconds. So a rate has exactly one limit, `1 / (exp(1 / (rate · window)) − 1)`, and
//! a limit is a real rate, whatever the domain was asked before. A domain that was left alone may be asked several times at once, at most [`BURST`] times.
//!
//! A temperature is kept as one moment: when it will have cooled to 1. That moment needs no cooling, grows with every page and never falls, so copies of it on
//! several nodes are merged by taking the later. Half a century of seconds in an `f32`, as it was done elsewhere, has steps of two minutes; these are milliseconds.

/// Limits between the soft and the hard rate that are tried one after the other, both included.
pub const STEPS: usize = 5;
/// The window is this many pages at the hard rate long, and so many are handed out at once of a domain that is cold.
pub const BURST: f64 = 10.0;

/// A temperature: the moment, in Unix milliseconds, at which it will have cooled to 1, or at which it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warmth(pub u64);

/// How often pages of a domain may be handed out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Seconds in which a domain cools to 1/e.
    window_s: f64,
    /// Logarithms of the highest temperature at which a domain is served, from soft to hard.
    limits: [f64; STEPS],
}

impl Rates {
    /// Rates in pages a second: as long as others have pages too a domain gets no more than `soft`, and never more than `hard`. `None` if they are no rates.
    pub fn new(soft: f64, hard: f64) -> Option<Rates> {
        let sound = |rate: f64| rate.is_finite() && rate > 0.0;
        if !sound(soft) || !sound(hard) || soft > hard {
            return None;
        }
        let window_s = BURST / hard;
        let rate = |step: usize| soft * (hard / soft).powf(step as f64 / (STEPS - 1) as f64);
        Some(Rates { window_s, limits: std::array::from_fn(|step| log_limit(rate(step), window_s)) })
    }

    /// How warm a domain is.
    pub fn temperature(&self, warmth: Warmth, now_ms: u64) -> f64 {
        self.log(warmth, now_ms).exp()
    }

    /// What a page more makes of it. Rounded up: no domain is thought cooler than it is.
    pub fn heat(&self, warmth: Warmth, now_ms: u64) -> Warmth {
        let hotter = self.log(warmth, now_ms).exp().ln_1p();
        Warmth((now_ms + (hotter * self.window_s * 1_000.0).ceil() as u64).max(warmth.0))
    }

    /// When a domain may be served by the limit of this step.
    pub fn opens_ms(&self, warmth: Warmth, step: usize) -> u64 {
        let wait = (-self.limits[step] * self.window_s * 1_000.0).ceil();
        if wait >= 0.0 { warmth.0.saturating_add(wait as u64) } else { warmth.0.saturating_sub(-wait as u64) }
    }

    /// The first step in which a domain may be served now.
    pub fn step(&self, warmth: Warmth, now_ms: u64) -> Option<usize> {
        (0..STEPS).find(|step| self.opens_ms(warmth, *step) <= now_ms)
    }

    fn log(&self, warmth: Warmth, now_ms: u64) -> f64 {
        let ahead = if warmth.0 >= now_ms { (warmth.0 - now_ms) as f64 } else { -((now_ms - warmth.0) as f64) };
        ahead / 1_000.0 / self.window_s
    }
}

/// The logarithm of the limit that is a rate. The limit itself is too small for a number where a rate is low and the window short.
fn log_limit(rate: f64, window_s: f64) -> f64 {
    let spacing = 1.0 / (rate * window_s);
    -(spacing + (-(-spacing).exp_m1()).ln())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_790_000_000_000;

    #[test]
    fn a_domain_cools_by_the_exponential_and_not_by_its_first_step() {
        let rates = Rates::new(1.0 / 6.0, 1.0 / 6.0).unwrap(); // a window of 60 s
        let once = rates.heat(Warmth::default(), NOW);
        let after = |seconds: u64| rates.temperature(once, NOW + seconds * 1_000);
        for (seconds, expected) in [(0, 1.0), (20, 0.717), (40, 0.513), (60, 0.368)] {
            assert!((after(seconds) - expected).abs() < 1e-3, "{seconds}: {}", after(seconds));
        }
        let twice = rates.heat(once, NOW + 20_000);
        assert!((rates.temperature(twice, NOW + 20_000) - 1.717).abs() < 1e-3);
    }

    #[test]
    fn steps_lead_from_the_soft_rate_to_the_hard_one() {
        // The steps that Aduana took between its defaults.
        let rates = Rates::new(0.25, 100.0).unwrap();
        let served = rates.heat(Warmth::default(), NOW);
        for (step, rate) in [0.25, 1.118, 5.0, 22.36, 100.0].into_iter().enumerate() {
            // Steady: whoever is served at the limit is at the limit again after one over the rate.
            let (mut warmth, mut now) = (served, NOW);
            for _ in 0..2_000 {
                now = now.max(rates.opens_ms(warmth, step));
                warmth = rates.heat(warmth, now);
            }
            let begun = now;
            for _ in 0..100 {
                now = now.max(rates.opens_ms(warmth, step));
                warmth = rates.heat(warmth, now);
            }
            let seen = 100.0 / ((now - begun) as f64 / 1_000.0);
            // Milliseconds are rounded up, so it is never more.
            assert!(seen <= rate * 1.001 && seen > rate * 0.8, "step {step}: {seen} instead of {rate}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for (soft, hard) in [(0.0, 1.0), (1.0, 0.0), (2.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
            assert_eq!(Rates::new(soft, hard), None, "{soft} {hard}");
        }
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_hard_rate_and_one_burst(
            hard in 0.01..1_000.0f64,
            part in 0.001..1.0f64,
            waits in proptest::collection::vec(0u64..4_000, 1..300),
        ) {
            let rates = Rates::new(hard * part, hard).unwrap();
            let (mut warmth, mut now, mut served) = (Warmth::default(), NOW, Vec::new());
            for wait in waits {
                now += wait;
                while rates.opens_ms(warmth, STEPS - 1) <= now && served.len() < 2_000 {
                    let hotter = rates.heat(warmth, now);
                    prop_assert!(hotter >= warmth);
                    (warmth, served) = (hotter, [served, vec![now]].concat());
                }
            }
            for (first, from) in served.iter().enumerate() {
                for (count, to) in (1..).zip(&served[first..]) {
                    let allowed = hard * (to - from) as f64 / 1_000.0 + BURST + 1.0;
                    prop_assert!(f64::from(count) <= allowed, "{count} of {allowed}");
                }
            }
        }
    }
}
