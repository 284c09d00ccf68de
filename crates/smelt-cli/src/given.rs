//! Which flags a person gave, for values that have another source than the flag and its default.

use std::collections::HashSet;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The ids of the arguments that stand on the command line. It flattens into a command's arguments and adds none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(HashSet<String>);

impl Given {
    /// All that were given.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether the argument was given.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let given = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        self.0.extend(given.map(str::to_owned));
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
