use std::path::Path;

use super::Config;
use super::mistake::FileError;
use super::reading::ConfigBuilder;

impl ConfigBuilder {
    /// Reads a file: see [`Config::read`].
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is too large, or has a mistake. The error has all mistakes. Mistakes of
    /// the file that it names in `shadow` are no error: [`Config::shadow`] has them.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Config, FileError> {
        let path = path.as_ref();
        let (_, config) = self.read_with_digest(path, self.text_of(path));
        config?.beside(self, path, None)
    }
}
