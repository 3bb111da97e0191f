//! The modules of a crate, read with `syn`: the names that each one declares and imports, and the file that defines
//! what a path names.
//!
//! What is deliberately absent: names that macros make, and names in attributes. A name that a known module does not
//! declare counts as made there.

use crate::error::ChoreError;
use crate::source::Tree;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemMod, ItemUse, Macro, Meta, UseTree};

#[cfg(test)]
mod tests;

/// Re-exports that one name may pass through; more are a circle of names.
const HOPS_MAX: usize = 16;

/// One crate: the modules of a target, the root first.
pub(crate) struct Modules {
    modules: Vec<Module>,
}

/// A name that one file takes from another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Import {
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
    pub(crate) name: String,
}

/// Where a path leads.
#[derive(Clone, PartialEq, Debug)]
enum Target {
    Module(usize),
    Item { module: usize, name: String },
}

struct Module {
    /// The file that holds it; modules in braces share the file of their parent.
    file: PathBuf,
    parent: usize,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    named: Named,
}

/// What the code of a module names.
#[derive(Default)]
struct Named {
    uses: Vec<Use>,
    /// Paths outside of `use`, by their segments.
    paths: Vec<Vec<String>>,
}

/// One leaf of a `use`.
struct Use {
    path: Vec<String>,
    /// The name that it has here; `None` for `*`.
    name: Option<String>,
}

impl Modules {
    /// Reads the target whose root is `root`, without its tests. Errors: a file is not Rust.
    pub(crate) fn read(tree: &Tree, root: &Path) -> Result<Self, ChoreError> {
        let mut this = Self { modules: Vec::new() };
        this.read_file(tree, root, 0, true)?;
        Ok(this)
    }

    /// Adds the module of a file and those below it. `is_root`: its modules lie beside it, not in a folder of its name.
    /// `None`: there is no such file, or it is a test.
    fn read_file(
        &mut self,
        tree: &Tree,
        path: &Path,
        parent: usize,
        is_root: bool,
    ) -> Result<Option<usize>, ChoreError> {
        let Some(file) = tree.file(path) else { return Ok(None) };
        let parsed = syn::parse_file(&file.text);
        let parsed = parsed.map_err(|source| ChoreError::NotRust { path: path.to_path_buf(), source })?;
        if is_test(&parsed.attrs) {
            return Ok(None);
        }
        let is_root = is_root || path.ends_with("mod.rs");
        let beside = path.parent().unwrap_or(Path::new(""));
        let folder = if is_root { beside.to_path_buf() } else { path.with_extension("") };
        self.read_items(tree, path, parent, &folder, &parsed.items).map(Some)
    }

    /// Adds a module with these items. `folder`: where the files of its children lie.
    fn read_items(
        &mut self,
        tree: &Tree,
        file: &Path,
        parent: usize,
        folder: &Path,
        items: &[Item],
    ) -> Result<usize, ChoreError> {
        let this = self.modules.len();
        let mut named = Named::default();
        items.iter().for_each(|item| named.visit_item(item));
        let kept = || items.iter().filter(|item| !is_test(attributes(item)));
        self.modules.push(Module {
            file: file.to_path_buf(),
            parent,
            children: BTreeMap::new(),
            items: kept().filter_map(item_name).collect(),
            named,
        });
        for item in kept() {
            let Item::Mod(module) = item else { continue };
            let name = name_of(&module.ident);
            let child = match (&module.content, path_attribute(module)) {
                (Some((_, items)), _) => Some(self.read_items(tree, file, this, &folder.join(&name), items)?),
                (None, Some(written)) => {
                    self.read_file(tree, &file.parent().unwrap_or(Path::new("")).join(written), this, true)?
                }
                (None, None) => match self.read_file(tree, &folder.join(format!("{name}.rs")), this, false)? {
                    None => self.read_file(tree, &folder.join(&name).join("mod.rs"), this, true)?,
                    found => found,
                },
            };
            self.modules[this].children.extend(child.map(|child| (name, child)));
        }
        Ok(this)
    }

    /// Returns what files take from each other. A module holds those below it: what it takes from them does not count,
    /// and what they take from it does. To name a module takes nothing, but what is named through it counts.
    pub(crate) fn imports(&self) -> BTreeSet<Import> {
        let mut found = BTreeSet::new();
        for (at, module) in self.modules.iter().enumerate() {
            let mut take = |to: usize, name: String| {
                let file = &self.modules[to].file;
                if *file != module.file && !self.is_below(to, at) {
                    found.insert(Import { from: module.file.clone(), to: file.clone(), name });
                }
            };
            for used in &module.named.uses {
                match self.resolve(at, &used.path, 0) {
                    Some(Target::Item { module, name }) => take(module, name),
                    Some(Target::Module(module)) if used.name.is_none() => take(module, "*".to_owned()),
                    _ => {}
                }
            }
            for path in &module.named.paths {
                if let Some(Target::Item { module, name }) = self.resolve(at, path, 0) {
                    take(module, name);
                }
            }
        }
        found
    }

    fn is_below(&self, mut module: usize, ancestor: usize) -> bool {
        while module != 0 {
            module = self.modules[module].parent;
            if module == ancestor {
                return true;
            }
        }
        false
    }

    /// Follows a path that stands in the module `from`. `None`: it leads out of the crate, or names something local.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<Target> {
        let mut at = from;
        for (position, segment) in path.iter().enumerate() {
            match segment.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = self.modules[at].parent,
                name => match self.look_up(at, name, position + 1 == path.len(), hops) {
                    Some(Some(Target::Module(module))) => at = module,
                    Some(other) => return other,
                    None if position == 0 => return None,
                    None => return Some(Target::Item { module: at, name: name.to_owned() }),
                },
            }
        }
        Some(Target::Module(at))
    }

    /// Looks for a name in a module. `is_last`: it ends its path, so an item goes before a module of the same name.
    /// `None`: the module does not have it; `Some(None)`: it is imported from another crate.
    fn look_up(&self, at: usize, name: &str, is_last: bool, hops: usize) -> Option<Option<Target>> {
        if hops > HOPS_MAX {
            return None;
        }
        let module = &self.modules[at];
        let child = module.children.get(name).map(|&child| Some(Target::Module(child)));
        if child.is_some() && !is_last {
            return child;
        }
        if module.items.contains(name) {
            return Some(Some(Target::Item { module: at, name: name.to_owned() }));
        }
        let uses = || module.named.uses.iter();
        let imported: Vec<_> = uses()
            .filter(|used| used.name.as_deref() == Some(name))
            .map(|used| self.resolve(at, &used.path, hops + 1))
            .collect();
        if let Some(target) = imported.iter().find(|target| target.is_some()) {
            return Some(target.clone());
        }
        if child.is_some() {
            return child;
        }
        if !imported.is_empty() {
            return Some(None);
        }
        uses().filter(|used| used.name.is_none()).find_map(|glob| match self.resolve(at, &glob.path, hops + 1)? {
            Target::Module(module) if module != at => self.look_up(module, name, is_last, hops + 1),
            _ => None,
        })
    }
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    /// A module in braces is a module of its own.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    /// Attributes, and doc comments with them, name nothing.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.add_uses(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths.push(path.segments.iter().map(|segment| name_of(&segment.ident)).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }
}

impl Named {
    fn add_uses(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        let depth = before.len();
        let mut leaf = |path: &[String], name| self.uses.push(Use { path: path.to_vec(), name });
        match tree {
            UseTree::Path(path) => {
                before.push(name_of(&path.ident));
                self.add_uses(before, &path.tree);
            }
            UseTree::Name(name) => {
                let name = name_of(&name.ident);
                // `a::{self}` is `a`.
                if name != "self" {
                    before.push(name);
                }
                leaf(before, before.last().cloned());
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    before.push(name_of(&rename.ident));
                }
                leaf(before, Some(name_of(&rename.rename)));
            }
            UseTree::Glob(_) => leaf(before, None),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_uses(before, tree)),
        }
        before.truncate(depth);
    }

    /// Adds the paths among the tokens of a macro.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut before = String::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if before != "::" {
                        self.paths.extend(Some(std::mem::take(&mut path)).filter(|path| !path.is_empty()));
                    }
                    // What stands behind a dot is a field or a method.
                    if before != "." {
                        path.push(name_of(&ident));
                    }
                    before.clear();
                }
                TokenTree::Punct(mark) => before.push(mark.as_char()),
                TokenTree::Group(group) => {
                    before = "()".to_owned();
                    self.add_tokens(group.stream());
                }
                TokenTree::Literal(_) => before = "literal".to_owned(),
            }
        }
        self.paths.extend(Some(path).filter(|path| !path.is_empty()));
    }
}

fn name_of(ident: &proc_macro2::Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

/// Returns the name by which other modules reach an item.
fn item_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name_of(ident))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item exists in tests alone: `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || (condition.starts_with("all") && condition.contains("(test"))
        }
        _ => false,
    })
}

/// Returns the file in `#[path = "..."]`.
fn path_attribute(module: &ItemMod) -> Option<String> {
    module.attrs.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}
