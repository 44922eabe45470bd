//! Things of a task, found by its number, without a map: one sorted vector and where each begins.

use std::collections::HashMap;
use std::hash::Hash;

/// Gives keys small numbers, in the order they are first met.
#[derive(Debug)]
pub(crate) struct Numbered<K> {
    numbers: HashMap<K, u32>,
    keys: Vec<K>,
}

impl<K: Hash + Eq + Clone> Numbered<K> {
    pub(crate) fn new() -> Self {
        Self { numbers: HashMap::new(), keys: Vec::new() }
    }

    /// The number of a key, which it gets now if it had none.
    pub(crate) fn number(&mut self, key: K) -> u32 {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        })
    }

    /// A number more for a key that has one: what is called the same and is another.
    pub(crate) fn another(&mut self, number: u32) -> u32 {
        self.keys.push(self.key(number).clone());
        u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX)
    }

    /// The key of a number.
    pub(crate) fn key(&self, number: u32) -> &K {
        &self.keys[number as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// All numbers.
    pub(crate) fn all(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.keys.len()).unwrap_or(u32::MAX)
    }
}

/// Something that belongs to one task.
pub(crate) trait OfTask {
    /// The task's number.
    fn task(&self) -> u32;
}

/// Things sorted by task, and within one task by what the maker chose.
#[derive(Debug)]
pub(crate) struct ByTask<T> {
    items: Vec<T>,
    first: Vec<u32>,
}

impl<T: OfTask> ByTask<T> {
    pub(crate) fn new<O: Ord>(mut items: Vec<T>, tasks: usize, order: impl Fn(&T) -> O) -> Self {
        items.sort_unstable_by_key(|item| (item.task(), order(item)));
        let mut first = vec![0_u32; tasks + 1];
        for item in &items {
            first[item.task() as usize + 1] += 1;
        }
        for task in 1..first.len() {
            first[task] += first[task - 1];
        }
        Self { items, first }
    }

    /// The items of a task.
    pub(crate) fn of(&self, task: u32) -> &[T] {
        let task = task as usize;
        &self.items[self.first[task] as usize..self.first[task + 1] as usize]
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[T] {
        &self.items
    }
}
