//! A cluster of processes on this machine, to be measured.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// Slots of the ring.
pub const SLOTS: u64 = 4_096;
/// D: the lease of clusters that lose nobody, in seconds. The default of 45 s would only make their benches longer.
const LEASE_S: u64 = 8;
/// How long anything may take before a bench gives up.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster that ends when it is dropped.
pub struct LocalCluster {
    program: PathBuf,
    folder: tempfile::TempDir,
    nodes: Vec<Option<Child>>,
}

impl LocalCluster {
    /// Starts `nodes` nodes with `delay_ms` between two requests to a host, and waits until they hold every slot.
    pub fn start(program: &Path, nodes: usize, delay_ms: u64) -> anyhow::Result<LocalCluster> {
        LocalCluster::start_with_lease(program, nodes, delay_ms, LEASE_S)
    }

    /// The same, with leases of so many seconds.
    pub fn start_with_lease(program: &Path, nodes: usize, delay_ms: u64, lease_s: u64) -> anyhow::Result<LocalCluster> {
        let folder = tempfile::tempdir()?;
        let settings = folder.path().join("shared.toml");
        std::fs::write(
            &settings,
            format!(
                "[filter]\nscope = \"any\"\n[politeness]\ndelay_ms = {delay_ms}\n[fetch]\nconcurrency = 512\n\
                 [fetch.limits]\nfetch_timeout_ms = 3000\n[cluster]\nid = \"bench\"\n[cluster.lease]\n\
                 duration_s = {lease_s}\nguard_ms = 200\n[cluster.membership]\nstable_for_ms = 2000\n"
            ),
        )?;
        let mut cluster = LocalCluster { program: program.to_owned(), folder, nodes: Vec::new() };
        // `cluster local` makes keys and settings; the nodes are ours, so that one of them can be killed.
        let mut local = cluster.quiet(["cluster", "local", "--nodes", &nodes.to_string()]);
        let mut local = local.arg("--data").arg(cluster.data()).arg("--config").arg(&settings).spawn()?;
        cluster.until("keys and settings are made", |cluster| Ok(cluster.config(nodes - 1).is_file()))?;
        cluster.until("the cluster answers", |cluster| Ok(cluster.ctl(&["nodes"]).is_ok()))?;
        Command::new("kill").args(["-INT", &local.id().to_string()]).status()?;
        local.wait()?;
        for node in 0..nodes {
            cluster.nodes.push(None);
            cluster.start_node(node)?;
        }
        cluster.until("all slots are held", |cluster| Ok(cluster.totals()?.held == SLOTS))?;
        Ok(cluster)
    }

    fn quiet<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn home(&self, node: usize) -> PathBuf {
        self.data().join(format!("node-{}", node + 1))
    }

    fn config(&self, node: usize) -> PathBuf {
        self.home(node).join("cluster.toml")
    }

    /// Where a node keeps what it has.
    pub fn data_of(&self, node: usize) -> PathBuf {
        self.home(node).join("data")
    }

    /// Starts a node that does not run.
    pub fn start_node(&mut self, node: usize) -> anyhow::Result<()> {
        let mut command = self.quiet(["node", "--allow-address", "127.0.0.0/8"]);
        command.stderr(std::fs::File::create(self.log(node))?);
        self.nodes[node] = Some(command.arg("--config").arg(self.config(node)).spawn()?);
        Ok(())
    }

    fn log(&self, node: usize) -> PathBuf {
        self.home(node).join("node.log")
    }

    /// Where a node serves the URL Frontier API, once it has said so.
    pub fn frontier(&self, node: usize) -> anyhow::Result<Option<String>> {
        let said = std::fs::read_to_string(self.log(node))?;
        Ok(said.lines().find_map(|line| line.strip_prefix("frontier: ")).map(|address| format!("http://{address}")))
    }

    /// Ends a node by SIGKILL.
    pub fn kill_node(&mut self, node: usize) -> anyhow::Result<()> {
        let mut child = self.nodes[node].take().context("it runs")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// What `ctl --json` says.
    pub fn ctl(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let ended = Command::new(&self.program)
            .args(["ctl", "--json", "--data"])
            .arg(self.data())
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&ended.stdout);
        let line = said.lines().next().with_context(|| String::from_utf8_lossy(&ended.stderr).into_owned())?;
        Ok(serde_json::from_str(line)?)
    }

    /// Carries out an operation of the Distributed Crawler in one call; its object.
    pub fn dc(&self, operation: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.folder.path().join("request.json");
        std::fs::write(&request, body.to_string())?;
        let ended = Command::new(&self.program)
            .args(["dc", "--command", operation, "--file"])
            .arg(&request)
            .arg("--data")
            .arg(self.data())
            .stdin(Stdio::null())
            .output()?;
        let mut answer: Value = serde_json::from_slice(&ended.stdout)
            .with_context(|| String::from_utf8_lossy(&ended.stderr).into_owned())?;
        ensure!(ended.status.success(), "{operation}: {answer}");
        Ok(answer["itemsList"][0]["itemObject"].take())
    }

    /// Hands in what is in a file, one URL a line.
    pub fn add(&self, urls: &Path) -> anyhow::Result<()> {
        let path = urls.to_str().context("a path that is text")?;
        let answer = self.ctl(&["url", "add", "--seeds", path])?;
        ensure!(answer["Added"]["kept"].as_u64().is_some_and(|kept| kept > 0), "not kept: {answer}");
        Ok(())
    }

    /// Sums of what the nodes say.
    pub fn totals(&self) -> anyhow::Result<Totals> {
        let answer = self.ctl(&["nodes"])?;
        let reports = answer["Nodes"].as_array().cloned().unwrap_or_default();
        let all = |path: &str| -> Vec<u64> {
            let numbers = reports.iter().map(|node| node["report"]["Ok"].pointer(path).and_then(Value::as_u64));
            numbers.map(Option::unwrap_or_default).collect()
        };
        let sum = |path: &str| all(path).into_iter().sum();
        let records_least = all("/records").into_iter().min().unwrap_or(0);
        Ok(Totals {
            held: sum("/held"),
            known: sum("/totals/known"),
            processed: sum("/totals/processed"),
            records_least,
        })
    }

    /// Looks until it is so.
    pub fn until(
        &self,
        what: &str,
        mut is_so: impl FnMut(&LocalCluster) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !is_so(self).unwrap_or(false) {
            if Instant::now() > end {
                bail!("waited in vain: {what}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

/// What all nodes together say of the slots that they hold.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Slots that are held.
    pub held: u64,
    /// URLs that are known.
    pub known: u64,
    /// URLs whose round is over.
    pub processed: u64,
    /// Records, on the node that has fewest.
    pub records_least: u64,
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for mut child in self.nodes.iter_mut().filter_map(Option::take) {
            // Nobody is left to hear of a failure.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
