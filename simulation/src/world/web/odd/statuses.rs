//! Errors that stay errors, and one that pretends not to be.

use super::super::Answer;
use super::super::expected::Kind;
use super::{Exhibit, Serve};

macro_rules! status {
    ($path:literal, $status:literal) => {
        Exhibit::new($path, Kind::Error, Serve::With(|_| Answer::error($status)))
    };
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    status!("/statuses/400", 400),
    status!("/statuses/401", 401),
    status!("/statuses/403", 403),
    status!("/statuses/404", 404),
    status!("/statuses/406", 406),
    status!("/statuses/410", 410),
    status!("/statuses/418", 418),
    status!("/statuses/451", 451),
    status!("/statuses/500", 500),
    status!("/statuses/501", 501),
    status!("/statuses/502", 502),
    status!("/statuses/503", 503),
    status!("/statuses/504", 504),
    status!("/statuses/599", 599),
    Exhibit::page("/statuses/soft-404", "<h1>Not found</h1><p>We are sorry, this page does not exist.</p>", &[]),
];
