//! Reads a file or a text into a configuration.
//!
//! The builder of a [`Config`] is here, since what it registers is needed while a file is read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::digest::{Sha, digest};
use super::functions::ReadSignal;
use super::functions::{Condition, Cost, Functions, Kind, LimitBy, PlanOf};
use super::marks;
use super::mistake::{FileError, Mistake, Notes, SourceText};
use super::secrets::Secrets;
use super::settings::{Settings, settings};
use super::tree::Node;
use super::walk::{At, Walk};
use super::{Config, Origin};
use super::{json, toml};
use tower_ratelimit::__internal::AnyKey;
use tower_ratelimit::algorithm::Algorithm;
use tower_ratelimit::key::{Extract, Head};
use tower_ratelimit_adapt::Traffic;

/// The format of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// JSON, without comments.
    Json,
}

/// Reads a [`Config`]; see [`Config::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder reads nothing until `read` or `parse`"]
pub struct ConfigBuilder {
    functions: Functions,
    max_bytes: usize,
}

/// The name of a configuration that is not a file.
const TEXT: &str = "<text>";

impl ConfigBuilder {
    pub(super) fn new() -> Self {
        Self {
            functions: Functions::default(),
            max_bytes: 1 << 20,
        }
    }

    /// Registers a key under a name, for `key = { function = "name" }`: a closure, or an
    /// [extension](tower_ratelimit::key::extension()) that authentication adds.
    ///
    /// ```
    /// use tower_ratelimit_config::{Config, Format};
    /// use tower_ratelimit::key;
    ///
    /// #[derive(Clone)]
    /// struct User {
    ///     id: u64,
    /// }
    ///
    /// let config = Config::builder()
    ///     .key("user", key::extension::<User>().map(|user: &User| user.id))
    ///     .parse(
    ///         r#"
    ///         [policies.daily]
    ///         quota = "10000/day"
    ///         key = { function = "user" }
    ///         "#,
    ///         Format::Toml,
    ///     )?;
    /// # Ok::<(), tower_ratelimit_config::FileError>(())
    /// ```
    pub fn key(self, name: impl Into<String>, key: impl Extract) -> Self {
        self.registering(name, AnyKey::new(key))
    }

    /// Registers a cost under a name, for `cost = { function = "name" }`.
    pub fn cost(
        self,
        name: impl Into<String>,
        cost: impl Fn(&Head<'_>) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<Cost>>(name, Arc::new(cost))
    }

    /// Registers a condition under a name, for `when = { function = "name" }`.
    pub fn condition(
        self,
        name: impl Into<String>,
        condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<Condition>>(name, Arc::new(condition))
    }

    /// Registers a function that returns the limit of a request, for `limit_by = { function = "name" }`: see
    /// [`Policy::limit_by`](tower_ratelimit::Policy::limit_by). `None` stands for the limit that the request has
    /// without it.
    ///
    /// ```
    /// use tower_ratelimit::FixedWindow;
    /// use tower_ratelimit_config::{Config, Format};
    ///
    /// #[derive(Clone)]
    /// struct Contract {
    ///     per_minute: u32,
    /// }
    ///
    /// let config = Config::builder()
    ///     .limit_by("contract", |head| {
    ///         let contract = head.extension::<Contract>()?;
    ///         Some(FixedWindow::per_minute(contract.per_minute))
    ///     })
    ///     .parse(
    ///         r#"
    ///         [policies.minute]
    ///         algorithm = "fixed-window"
    ///         quota = "60/minute"
    ///         key = "client_ip"
    ///         limit_by = { function = "contract" }
    ///         "#,
    ///         Format::Toml,
    ///     )?;
    /// # Ok::<(), tower_ratelimit_config::FileError>(())
    /// ```
    pub fn limit_by<A: Into<Algorithm>>(
        self,
        name: impl Into<String>,
        limit: impl Fn(&Head<'_>) -> Option<A> + Send + Sync + 'static,
    ) -> Self {
        let limit = move |head: &Head<'_>| limit(head).map(Into::into);
        self.registering::<Arc<LimitBy>>(name, Arc::new(limit))
    }

    /// Registers a function that returns the plan of a request, for `plan_of = { function = "name" }`. `None`
    /// stands for the default plan.
    pub fn plan_of(
        self,
        name: impl Into<String>,
        plan_of: impl Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<PlanOf>>(name, Arc::new(plan_of))
    }

    /// Registers a signal under a name, for `signals` of the table `adapt`: a closure that returns a share,
    /// as for [`from_fn`](tower_ratelimit_adapt::from_fn).
    pub fn signal(
        self,
        name: impl Into<String>,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        self.registering::<Arc<ReadSignal>>(name, Arc::new(read))
    }

    /// Registers the traffic that the signals `latency`, `in flight` and `failures` of the table `adapt`
    /// measure.
    pub fn traffic(mut self, traffic: &Traffic) -> Self {
        self.functions.traffic = Some(traffic.clone());
        self
    }

    pub(super) fn with(mut self, register: impl FnOnce(&mut Functions)) -> Self {
        register(&mut self.functions);
        self
    }

    pub(super) fn registering<K: Kind>(self, name: impl Into<String>, function: K) -> Self {
        self.with(|functions| functions.add(name.into(), function))
    }

    /// Sets the largest size of a file; the default is 1 MiB. A larger file is rejected unread.
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Reads the text of a file, without the file in shadow that it may name. Also returns the digest of its
    /// bytes, if they could be read.
    pub(super) fn read_with_digest(
        &self,
        path: &Path,
        text: Result<String, String>,
    ) -> (Option<Sha>, Result<Config, FileError>) {
        let name = path.display().to_string();
        let text = match text {
            Ok(text) => text,
            Err(message) => return (None, Err(whole(&name, message))),
        };
        let is_json = path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        let format = if is_json { Format::Json } else { Format::Toml };
        let sha256 = digest(&text);
        let config = self.parse_as(&name, &text, format).map(|config| Config {
            origin: Some(Arc::new(Origin {
                path: path.to_owned(),
                builder: self.clone().read_again(&config),
                sha256,
            })),
            ..config
        });
        (Some(sha256), config)
    }

    /// Sets the builder up for the next version, which follows the factor of the first one, since that is
    /// sampled.
    fn read_again(mut self, read: &Config) -> Self {
        self.functions.running = read.adapt().cloned();
        self
    }

    /// Sets the builder up for the next version, whose keys are hashed as those of this one if it names the secret as this one does.
    pub(super) fn hashing_as(mut self, read: &Config) -> Self {
        self.functions.secret = read.settings.secret_in_use();
        self
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// When the text is too long or has a mistake. The error has all mistakes.
    pub fn parse(&self, text: &str, format: Format) -> Result<Config, FileError> {
        if text.len() > self.max_bytes {
            return Err(whole(TEXT, self.too_large()));
        }
        let mut config = self.parse_as(TEXT, text, format)?;
        if config.settings.shadow.is_some() {
            let message = "a text has no file in shadow; read the configuration from a file";
            let warning = Mistake::new(&config.source, None, "shadow".into(), message.into());
            config.warnings = config.warnings.iter().cloned().chain([warning]).collect();
        }
        Ok(config)
    }

    pub(super) fn text_of(&self, path: &Path) -> Result<String, String> {
        let refused = |error: io::Error| format!("the file cannot be read: {error}");
        self.text_from(File::open(path).map_err(refused)?)
    }

    /// Reads the text of an open file.
    fn text_from(&self, file: File) -> Result<String, String> {
        let refused = |error: io::Error| format!("the file cannot be read: {error}");
        let most = u64::try_from(self.max_bytes).unwrap_or(u64::MAX);
        if file.metadata().map_err(refused)?.len() > most {
            return Err(self.too_large());
        }
        let mut bytes = Vec::new();
        // The file may grow while it is read, and a pipe has no length.
        let limited = &mut file.take(most.saturating_add(1));
        limited.read_to_end(&mut bytes).map_err(refused)?;
        if bytes.len() > self.max_bytes {
            return Err(self.too_large());
        }
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            format!("the file is not UTF-8: byte {at}")
        })
    }

    /// Reads a watched file again, if it is a regular file: a pipe without a writer blocks for ever.
    ///
    /// What is opened is what is checked, since a pipe may take the place of a file at any moment.
    pub(super) fn text_again(&self, path: &Path) -> Result<String, String> {
        let refused = |error: io::Error| format!("the file cannot be read: {error}");
        let mut options = File::options();
        options.read(true);
        // Opening a pipe waits for a writer otherwise. Regular files do not differ.
        #[cfg(unix)]
        options.custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(refused)?;
        if !file.metadata().map_err(refused)?.is_file() {
            return Err("it is no regular file, and cannot be watched".to_owned());
        }
        self.text_from(file)
    }

    fn too_large(&self) -> String {
        let most = self.max_bytes;
        format!("the file is larger than {most} bytes; make it smaller, or raise `max_bytes`")
    }

    fn parse_as(&self, name: &str, text: &str, format: Format) -> Result<Config, FileError> {
        // A mark that some editors write has no meaning, and no column.
        let mut source = SourceText::new(name, text.strip_prefix('\u{feff}').unwrap_or(text));
        let mut mistakes = Notes::default();
        let root = match format {
            Format::Toml => {
                let (root, errors) = toml::parse(source.text());
                for error in errors {
                    mistakes.add(error.span.as_ref(), "", error.message);
                }
                Some(root)
            }
            Format::Json => match json::parse(source.text()) {
                Ok(root) => Some(root),
                Err(error) => {
                    let span = source.span_of(error.line(), error.column());
                    mistakes.add(Some(&span), "", json_message(source.text(), &span, &error));
                    None
                }
            },
        };
        let (settings, warnings) = match root {
            // A file that cannot be parsed does not have its intended meaning.
            Some(mut root) if mistakes.is_empty() => {
                marks::mark(&mut root);
                source.without(Secrets::of(&root));
                let (settings, wrong, warnings) = self.walk(&source, &root);
                mistakes = wrong;
                (settings, warnings)
            }
            _ => (None, Notes::default()),
        };
        match settings {
            Some(settings) if mistakes.is_empty() => Ok(Config {
                settings: Arc::new(settings),
                warnings: warnings.first(&source).0.into(),
                source,
                origin: None,
                shadow: None,
            }),
            _ if mistakes.is_empty() => {
                Err(whole(name, "the file cannot be understood".to_owned()))
            }
            _ => Err(FileError::of(mistakes, &source)),
        }
    }

    fn walk(&self, source: &SourceText, root: &Node) -> (Option<Settings>, Notes, Notes) {
        let walk = Walk::new(source, &self.functions);
        let settings = settings(&At::root(&walk, root));
        let (mut mistakes, warnings) = walk.end();
        if mistakes.is_empty()
            && let Some(settings) = &settings
            && let Err(error) = settings.layer.clone().build()
        {
            // The builder checks what the walk does not.
            mistakes.add(None, "", error.to_string());
        }
        (settings, mistakes, warnings)
    }
}

/// Returns whether this path is something other than a file, such as a pipe.
pub(super) fn is_no_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|there| !there.is_file())
}

/// Returns the error for a mistake of a whole file.
pub(super) fn whole(name: &str, message: String) -> FileError {
    let source = SourceText::new(name, "");
    FileError::new(vec![Mistake::new(&source, None, String::new(), message)])
}

/// Returns the message of an error in JSON without its place, with which it ends.
fn json_message(source: &str, span: &Range<usize>, error: &serde_json::Error) -> String {
    if source.trim().is_empty() {
        return "the file is empty; a file without policies limits nothing".to_owned();
    }
    let wrong = source.get(span.start..).unwrap_or_default();
    if wrong.starts_with(['/', '#']) {
        return "JSON has no comments; leave it out, or write the file in TOML".to_owned();
    }
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
