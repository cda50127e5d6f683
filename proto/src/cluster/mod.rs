//! Who is alive, who owns, who may, who has a copy.
//!
//! Reading order: [`ring`] and [`membership`] (whose slot is it), [`lease`] (who may ask its hosts), [`copy`], [`turn`], [`replicate`], [`repair`] and
//! [`transfer`] (who keeps its records), [`route`] and [`propagate`] (who fetches, and how what came of it returns), [`message`] (what
//! nodes say), [`registry`] (what people defined, on every node; [`admission`] and [`departure`] are such definitions), [`share`] (who may do how much of what is limited), [`contents`] (who has the pages), [`coordinator`] (all of it in one machine). [`mutant`] breaks it on purpose.

pub mod admission;
pub mod amend;
pub mod contents;
pub mod coordinator;
pub mod copy;
pub mod departure;
pub mod enrolment;
pub mod lease;
pub mod membership;
pub mod message;
pub mod mutant;
pub mod propagate;
pub mod registry;
pub mod repair;
pub mod replicate;
pub mod ring;
pub mod route;
pub mod share;
pub mod slot_set;
pub mod transfer;
pub mod turn;
