//! What was asked for on the command line.

use std::{env, path::PathBuf};

pub const HELP: &str = "casque beside its peers, at the same work

cargo bench --bench peers -- [OPTIONS]

  --pairs N       pairs of runs, one of casque and one of the peer, for each ratio [default: 10]
  --seconds S     how long each run is measured [default: 1]
  --samples N     enqueues to an idle worker [default: 5000]
  --quick         3 pairs of 0.4 s, 150 samples, 20 idle workers: for a look
  --only WORD     only works and peers with the word in their name; several times: each word must be in one of the two
  --folder PATH   where the stores are made; what counts is its disk [default: the temporary folder]
  --json FILE     writes all figures
  --svg FILE      writes a plot
  --list          names works and peers, and which are not installed";

#[derive(Debug)]
pub struct Options {
    pub pairs: usize,
    pub seconds: f64,
    pub samples: usize,
    pub idle_workers: usize,
    pub only: Vec<String>,
    pub folder: PathBuf,
    pub json: Option<PathBuf>,
    pub svg: Option<PathBuf>,
    pub lists: bool,
}

impl Options {
    /// None where only the help is wanted.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            pairs: 10,
            seconds: 1.0,
            samples: 5000,
            idle_workers: 200,
            only: Vec::new(),
            folder: env::temp_dir(),
            json: None,
            svg: None,
            lists: false,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--bench" => {} // cargo's own
                "--help" | "-h" => return Ok(None),
                "--quick" => {
                    (options.pairs, options.seconds) = (3, 0.4);
                    (options.samples, options.idle_workers) = (150, 20);
                }
                "--pairs" => options.pairs = number(&arg, &value()?)?,
                "--seconds" => options.seconds = number(&arg, &value()?)?,
                "--samples" => options.samples = number(&arg, &value()?)?,
                "--only" => options.only.push(value()?.to_lowercase()),
                "--folder" => options.folder = value()?.into(),
                "--json" => options.json = Some(value()?.into()),
                "--svg" => options.svg = Some(value()?.into()),
                "--list" => options.lists = true,
                _ => return Err(format!("there is no option {arg}; --help names them")),
            }
        }
        if options.pairs == 0 || options.samples == 0 || !(0.2..=600.0).contains(&options.seconds) {
            return Err("there must be a pair and a sample, and from 0.2 to 600 seconds".to_owned());
        }
        Ok(Some(options))
    }

    pub fn wants(&self, work: &str, peer: &str) -> bool {
        let (work, peer) = (work.to_lowercase(), peer.to_lowercase());
        self.only.iter().all(|word| work.contains(word) || peer.contains(word))
    }
}

fn number<N: std::str::FromStr>(arg: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{arg} needs a number, not {value:?}"))
}
