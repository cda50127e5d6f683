//! Jobs with generators in a run, and people who want them to run now. They follow from the seed of the plan alone, so that plans need not say them.

use std::sync::Arc;

use proto::crawl::politeness::Micros;
use proto::id::Slot;
use proto::source::job::{CodeType, Generator, Job, Known, Target, generator_status, job_status, new_id};
use proto::source::schedule::Schedule;

use super::clock::START_UNIX_MS;
use super::plan::{MILLISECOND, Plan};
use super::random::{For, Random};

/// Jobs of a run.
const JOBS: u64 = 3;
/// People who want one to run now.
const BY_HAND: u64 = 4;
/// Who got no answer asks again after this.
pub(crate) const PATIENCE: Micros = 2_000 * MILLISECOND;

/// The jobs. Each was missed for an hour when the run begins, and comes every minute until nobody wants it `by_cron` any more.
pub(crate) fn jobs(by_cron: bool) -> Vec<Arc<Job>> {
    (0..JOBS).map(|number| Arc::new(job(number, by_cron))).collect()
}

fn job(number: u64, by_cron: bool) -> Job {
    let generator = Generator {
        id: new_id(0, 100 + number),
        code: "true".to_owned(),
        code_type: CodeType::Shell,
        cron: by_cron.then(|| "* * * * *".to_owned()),
        status: generator_status::ON,
        added_ms: START_UNIX_MS,
        last_ms: Some(START_UNIX_MS - 3_600_000),
        set_ms: 1,
    };
    Job {
        id: new_id(0, number),
        name: format!("job {number}"),
        info: String::new(),
        customer: None,
        creator: String::new(),
        status: job_status::ON,
        priority: number as i8,
        target: Target::Own,
        known: Known::InJob,
        has_args: false,
        added_ms: START_UNIX_MS,
        generators: vec![generator],
    }
}

/// The slots in which they lie.
pub(crate) fn slots() -> impl Iterator<Item = Slot> {
    (0..JOBS).map(|number| Schedule::slot(&new_id(0, number)))
}

/// When people want one to run for the first time.
pub(crate) fn times(plan: &Plan) -> Vec<Micros> {
    let time = |number| Random::at(plan.seed, For::Source, number, 0).below(plan.faults_end());
    (0..BY_HAND).map(time).collect()
}

/// Whom one of them asks the next time, and for which job.
pub(crate) fn draw(plan: &Plan, number: usize, attempt: u64) -> (Random, String) {
    let job = new_id(0, number as u64 % JOBS);
    (Random::at(plan.seed, For::Source, number as u64, attempt + 1), job)
}
