//! Proxies of sites: they are part of the site's definition, so every node has them; how often one failed is each node's own.

use std::sync::Arc;

use proto::query::{Collector, Source};
use proto::site::{BadRequest, Operation, ProxyOrder, SiteProxy};
use serde_json::{Value as Json, json};

use super::Shared;
use super::site::{Change, Failed, Outcome};
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::node::Node;

impl Shared {
    /// Gives a site a proxy, changes or takes it away.
    pub(super) async fn proxy_change(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        body: Json,
        operation: Operation,
    ) -> Outcome {
        let order = ProxyOrder::read(body)?;
        let (site, name) = (order.site_id.clone(), order.name()?);
        let changed = self.change_site(node, swarm, &site, &Change::Proxy(order, operation)).await;
        if changed.is_ok() {
            node.proxies().forgive(&name);
        }
        changed
    }

    /// The proxies of sites that are named or meet criterions, with how often each has just failed on this node.
    pub(super) fn proxy_find(&self, node: &Node, bodies: Vec<Json>, operation: Operation) -> Outcome {
        let crawls = node.crawls();
        let mut told = Vec::new();
        for body in bodies {
            let order = ProxyOrder::read(body)?;
            let site = crawls.site(&order.site_id).map(|(site, _)| site).filter(|site| !site.deleted);
            let site = site.ok_or_else(|| Failed::no_site(&order.site_id))?;
            let query = order.criterions.clone().unwrap_or_default().query_of_all(Source::Proxies)?;
            let named =
                if operation == Operation::ProxyStatus || !order.host.is_empty() { Some(order.name()?) } else { None };
            let faults = |proxy: &SiteProxy| proxy.with_faults(node.proxies().faults(&proxy.host));
            let found: Vec<SiteProxy> = site
                .site
                .proxies
                .iter()
                .map(faults)
                .filter(|proxy| named.as_ref().is_none_or(|name| proxy.host == *name))
                .collect();
            let mut collector = Collector::new(&query);
            for proxy in &found {
                let looked = collector.look(proxy, unix_ms());
                looked.map_err(|error| BadRequest::new("criterions", error.to_string()))?;
            }
            let rows = super::urls::objects(collector.finish());
            let hosts = rows.iter().filter_map(|row| row["host"].as_str());
            for proxy in hosts.filter_map(|host| found.iter().find(|proxy| proxy.host == host)) {
                let mut proxy = json!(proxy);
                proxy["siteId"] = json!(order.site_id);
                told.push(proxy);
            }
        }
        Ok(Json::Array(told))
    }
}
