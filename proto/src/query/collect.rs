//! Puts the answer to a query together, of rows and of the parts that other nodes collected.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evaluate::Row;
use super::value::Value;
use super::{Column, Figure, Query, ROWS_MAX};

/// Bytes of the rows of one part, about: what an answer between nodes has room for.
const PART_BYTES_MAX: usize = 2 << 20;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectError {
    /// Too many groups.
    #[error("more than {ROWS_MAX} groups; group by something coarser, or narrow the condition")]
    Groups,
    /// Too much text.
    #[error("the answer is longer than {} MiB; select fewer fields, or fewer rows", PART_BYTES_MAX >> 20)]
    Bytes,
    /// A part of another query.
    #[error("a part of the answer does not belong to the query")]
    Foreign,
}

/// What one node found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// Rows: what they are ordered by, and what is told of them.
    Rows(Vec<(Vec<Value>, Vec<Value>)>),
    /// Groups: what they have in common, and figures.
    Groups(Vec<(Vec<Value>, Vec<Sums>)>),
}

/// What figures are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    count: u64,
    sum: Value,
    min: Value,
    max: Value,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
}

/// Collects rows.
pub struct Collector<'a> {
    query: &'a Query,
    rows: Vec<(Vec<Value>, Vec<Value>)>,
    groups: BTreeMap<GroupKey, Vec<Sums>>,
}

/// Groups are told apart, and told in order, by their values.
#[derive(Clone, Debug, PartialEq)]
struct GroupKey(Vec<Value>);

impl Eq for GroupKey {}

impl Ord for GroupKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let ordered = self.0.iter().zip(&other.0).map(|(a, b)| a.order(b)).find(|ordering| ordering.is_ne());
        ordered.unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

impl PartialOrd for GroupKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Default for Sums {
    fn default() -> Self {
        Sums { count: 0, sum: Value::Int(0), min: Value::Null, max: Value::Null }
    }
}

impl Sums {
    fn of(value: Value) -> Sums {
        let sum = if value.number().is_some() { value.clone() } else { Value::Int(0) };
        Sums { count: 1, sum, min: value.clone(), max: value }
    }

    fn add(&mut self, other: &Sums) {
        self.count = self.count.saturating_add(other.count);
        self.sum = match (&self.sum, &other.sum) {
            (Value::Int(a), Value::Int(b)) => {
                a.checked_add(*b).map_or_else(|| Value::Float(*a as f64 + *b as f64), Value::Int)
            }
            (a, b) => Value::Float(a.number().unwrap_or(0.0) + b.number().unwrap_or(0.0)),
        };
        let better = |mine: &mut Value, theirs: &Value, wanted: Ordering| {
            if *mine == Value::Null || theirs.compare(mine) == Some(wanted) {
                *mine = theirs.clone();
            }
        };
        if other.min != Value::Null {
            better(&mut self.min, &other.min, Ordering::Less);
            better(&mut self.max, &other.max, Ordering::Greater);
        }
    }

    fn figure(&self, figure: Figure) -> Value {
        match figure {
            Figure::Count => Value::int(self.count),
            Figure::Sum | Figure::Avg if self.count == 0 => Value::Null,
            Figure::Sum => self.sum.clone(),
            Figure::Avg => self.sum.number().map_or(Value::Null, |sum| Value::Float(sum / self.count as f64)),
            Figure::Min => self.min.clone(),
            Figure::Max => self.max.clone(),
        }
    }
}

impl<'a> Collector<'a> {
    /// Collects the answer to `query`.
    pub fn new(query: &'a Query) -> Collector<'a> {
        Collector { query, rows: Vec::new(), groups: BTreeMap::new() }
    }

    fn wanted(&self) -> usize {
        self.query.limit.saturating_add(self.query.offset)
    }

    /// Whether no further row can change the answer.
    pub fn is_full(&self) -> bool {
        !self.query.is_grouped() && self.query.order.is_empty() && self.rows.len() >= self.wanted()
    }

    /// Looks at a row.
    pub fn look(&mut self, row: &dyn Row, now: u64) -> Result<(), CollectError> {
        if self.is_full() || !self.query.admits(row, now) {
            return Ok(());
        }
        if self.query.is_grouped() {
            let key = self.query.groups.iter().map(|field| row.value(field)).collect();
            let sums = self.query.columns.iter().map(|column| match column {
                Column::Field(_) => Sums::default(),
                Column::Figure(_, None) => Sums { count: 1, ..Sums::default() },
                Column::Figure(_, Some(field)) => match row.value(field) {
                    Value::Null => Sums::default(),
                    value => Sums::of(value),
                },
            });
            return self.add_group(key, &sums.collect::<Vec<Sums>>());
        }
        let order = self.query.order.iter().map(|(column, _)| match column {
            Column::Field(field) => row.value(field),
            Column::Figure(..) => Value::Null,
        });
        let order: Vec<Value> = order.collect();
        let told = self.query.columns.iter().map(|column| match column {
            Column::Field(field) => row.value(field),
            Column::Figure(..) => Value::Null,
        });
        self.rows.push((order, told.collect()));
        self.shrink(2 * self.wanted().max(256));
        Ok(())
    }

    fn add_group(&mut self, key: Vec<Value>, sums: &[Sums]) -> Result<(), CollectError> {
        let key = GroupKey(key);
        if !self.groups.contains_key(&key) && self.groups.len() >= ROWS_MAX {
            return Err(CollectError::Groups);
        }
        let group = self.groups.entry(key).or_insert_with(|| vec![Sums::default(); sums.len()]);
        group.iter_mut().zip(sums).for_each(|(mine, more)| mine.add(more));
        Ok(())
    }

    /// Keeps the first rows only, once there are more than `above`.
    fn shrink(&mut self, above: usize) {
        if self.rows.len() > above {
            let order = &self.query.order;
            self.rows.sort_by(|a, b| compare(order, &a.0, &b.0));
            self.rows.truncate(self.wanted());
        }
    }

    /// What was found here, to be put together with other parts.
    pub fn part(mut self) -> Result<Part, CollectError> {
        if self.query.is_grouped() {
            return Ok(Part::Groups(self.groups.into_iter().map(|(key, sums)| (key.0, sums)).collect()));
        }
        self.shrink(self.wanted());
        let bytes: usize = self.rows.iter().flat_map(|(order, told)| order.iter().chain(told)).map(bytes_of).sum();
        if bytes > PART_BYTES_MAX { Err(CollectError::Bytes) } else { Ok(Part::Rows(self.rows)) }
    }

    /// Takes in what another node found.
    pub fn merge(&mut self, part: Part) -> Result<(), CollectError> {
        let (order, columns) = (self.query.order.len(), self.query.columns.len());
        match part {
            Part::Rows(rows) if !self.query.is_grouped() => {
                if rows.iter().any(|(by, told)| by.len() != order || told.len() != columns) {
                    return Err(CollectError::Foreign);
                }
                self.rows.extend(rows);
                self.shrink(self.wanted());
                Ok(())
            }
            Part::Groups(groups) if self.query.is_grouped() => {
                for (key, sums) in groups {
                    if key.len() != self.query.groups.len() || sums.len() != columns {
                        return Err(CollectError::Foreign);
                    }
                    self.add_group(key, &sums)?;
                }
                Ok(())
            }
            _ => Err(CollectError::Foreign),
        }
    }

    /// The answer.
    pub fn finish(mut self) -> Table {
        let query = self.query;
        let head = query.columns.iter().map(|column| column.name()).collect();
        let mut rows: Vec<(Vec<Value>, Vec<Value>)> = if query.is_grouped() {
            if self.groups.is_empty() && query.groups.is_empty() {
                // A figure over nothing is still one.
                self.groups.insert(GroupKey(Vec::new()), vec![Sums::default(); query.columns.len()]);
            }
            self.groups.iter().map(|(key, sums)| group_row(query, &key.0, sums)).collect()
        } else {
            self.rows
        };
        rows.sort_by(|a, b| compare(&query.order, &a.0, &b.0));
        let rows = rows.into_iter().skip(query.offset).take(query.limit).map(|(_, told)| told).collect();
        Table { head, rows }
    }
}

fn group_row(query: &Query, key: &[Value], sums: &[Sums]) -> (Vec<Value>, Vec<Value>) {
    let common = |field: &str| query.groups.iter().position(|group| *group == field).map(|at| key[at].clone());
    let value = |column: &Column| match column {
        Column::Field(field) => common(field).unwrap_or(Value::Null),
        Column::Figure(figure, _) => {
            let at = query.columns.iter().position(|other| other == column);
            at.map_or(Value::Null, |at| sums[at].figure(*figure))
        }
    };
    (query.order.iter().map(|(column, _)| value(column)).collect(), query.columns.iter().map(value).collect())
}

fn compare(order: &[(Column, bool)], a: &[Value], b: &[Value]) -> Ordering {
    let by = order.iter().zip(a.iter().zip(b)).map(|((_, falling), (a, b))| {
        let rising = a.order(b);
        if *falling { rising.reverse() } else { rising }
    });
    by.into_iter().find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len() + 4,
        _ => 10,
    }
}
