//! Which URLs belong to a crawl: scope, include and exclude patterns, traps.
