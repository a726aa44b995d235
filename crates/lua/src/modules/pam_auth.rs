//! `pam_auth`: whether the system knows a user with this password, as PAM says (Linux-PAM).

#![allow(
    unsafe_code,
    reason = "libpam is loaded at run time, and is a library of C"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use mlua::{Lua, LuaString, Table};

use crate::modules::run_prelude;
use crate::watchdog;

/// The module. The thread of the instance waits until PAM has decided.
pub(crate) fn module(lua: &Lua) -> mlua::Result<Table> {
    table(lua, None)
}

/// Whether there is a libpam, or else what to do about it.
pub(crate) fn check() -> Result<(), String> {
    library().map(|_| ())
}

/// With the services of PAM in this folder instead of /etc/pam.d.
fn table(lua: &Lua, folder: Option<CString>) -> mlua::Result<Table> {
    let library = library().map_err(mlua::Error::RuntimeError)?;
    let login = lua.create_function(
        move |_, (service, user, password): (LuaString, LuaString, LuaString)| {
            // None if there is a NUL in one, which C would take for its end.
            let text = |text: LuaString| CString::new(text.as_bytes().to_vec()).ok();
            let (Some(service), Some(user)) = (text(service), text(user)) else {
                return Ok(None);
            };
            let Some(password) = text(password) else {
                return Ok(None);
            };
            let credentials = Credentials { user, password };
            // PAM makes whoever is wrong wait for some seconds.
            let login = || library.login(folder.as_deref(), &service, &credentials);
            Ok(Some(watchdog::outside(login)))
        },
    )?;
    run_prelude(lua, include_str!("../prelude/pam_auth.lua"), login)
}

fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| Library::load(c"libpam.so.0"));
    library.as_ref().map_err(Clone::clone)
}

struct Credentials {
    user: CString,
    password: CString,
}

/// The functions of libpam, which is never unloaded.
struct Library {
    start: Start,
    /// Since Linux-PAM 1.4.
    start_in_folder: Option<StartInFolder>,
    authenticate: Decide,
    check_account: Decide,
    end: Decide,
}

type Start = unsafe extern "C" fn(
    service: *const c_char,
    user: *const c_char,
    conversation: *const Conversation,
    handle: *mut *mut c_void,
) -> c_int;

type StartInFolder = unsafe extern "C" fn(
    service: *const c_char,
    user: *const c_char,
    conversation: *const Conversation,
    folder: *const c_char,
    handle: *mut *mut c_void,
) -> c_int;

type Decide = unsafe extern "C" fn(handle: *mut c_void, flags_or_status: c_int) -> c_int;

/// `struct pam_conv`
#[repr(C)]
struct Conversation {
    answer: unsafe extern "C" fn(
        count: c_int,
        questions: *mut *const Question,
        answers: *mut *mut Answer,
        credentials: *mut c_void,
    ) -> c_int,
    credentials: *mut c_void,
}

/// `struct pam_message`
#[repr(C)]
struct Question {
    style: c_int,
    text: *const c_char,
}

/// `struct pam_response`
#[repr(C)]
struct Answer {
    text: *mut c_char,
    unused: c_int,
}

impl Library {
    fn load(name: &CStr) -> Result<Self, String> {
        // SAFETY: the name is a string of C, and libpam does nothing but register itself.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let absent = || {
            let name = name.to_string_lossy();
            format!(
                "the module pam_auth needs {name}, which cannot be loaded; \
                 install it (the package libpam0g of Debian, pam of others)"
            )
        };
        let handle = NonNull::new(handle).ok_or_else(absent)?;
        let symbol = |name: &CStr| {
            // SAFETY: the handle is open and stays so, the name is a string of C.
            NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
        };
        let decide = |name: &CStr| {
            let found = symbol(name).ok_or_else(absent)?;
            // SAFETY: the three functions with these names have two arguments, the handle and an
            // int, and return an int (pam_appl.h).
            Ok::<_, String>(unsafe { mem::transmute::<NonNull<c_void>, Decide>(found) })
        };
        let start = symbol(c"pam_start").ok_or_else(absent)?;
        let start_in_folder = symbol(c"pam_start_confdir");
        Ok(Self {
            // SAFETY: as pam_appl.h declares it.
            start: unsafe { mem::transmute::<NonNull<c_void>, Start>(start) },
            // SAFETY: as pam_appl.h declares it.
            start_in_folder: start_in_folder
                .map(|found| unsafe { mem::transmute::<NonNull<c_void>, StartInFolder>(found) }),
            authenticate: decide(c"pam_authenticate")?,
            check_account: decide(c"pam_acct_mgmt")?,
            end: decide(c"pam_end")?,
        })
    }

    /// Whether the user has this password and may use the account now.
    fn login(&self, folder: Option<&CStr>, service: &CStr, credentials: &Credentials) -> bool {
        let conversation = Conversation {
            answer,
            credentials: ptr::from_ref(credentials).cast_mut().cast(),
        };
        let (service, user) = (service.as_ptr(), credentials.user.as_ptr());
        let mut handle = ptr::null_mut();
        let started = match (folder, self.start_in_folder) {
            (None, _) => {
                // SAFETY: the strings and the conversation live until `end`, which is called below.
                unsafe { (self.start)(service, user, &conversation, &mut handle) }
            }
            (Some(folder), Some(start)) => {
                // SAFETY: as above.
                unsafe { start(service, user, &conversation, folder.as_ptr(), &mut handle) }
            }
            (Some(_), None) => return false,
        };
        if started != PAM_SUCCESS {
            return false;
        }
        // SAFETY: the handle was started and has not ended; nobody else has it.
        let mut status = unsafe { (self.authenticate)(handle, PAM_SILENT) };
        if status == PAM_SUCCESS {
            // SAFETY: as above.
            status = unsafe { (self.check_account)(handle, PAM_SILENT) };
        }
        // SAFETY: as above; from here on nobody has it.
        unsafe { (self.end)(handle, status) };
        status == PAM_SUCCESS
    }
}

/// Answers what a module of PAM asks: the password where it must not be shown, else the user.
///
/// # Safety
///
/// Called by libpam only, with `count` questions, and the credentials that it was started with.
unsafe extern "C" fn answer(
    count: c_int,
    questions: *mut *const Question,
    answers: *mut *mut Answer,
    credentials: *mut c_void,
) -> c_int {
    let Ok(count @ 1..=QUESTIONS_MAX) = usize::try_from(count) else {
        return PAM_CONV_ERR;
    };
    // SAFETY: these are what `login` made, and it still runs.
    let credentials = unsafe { &*credentials.cast::<Credentials>() };
    // SAFETY: there is no precondition; PAM frees it, and each text in it.
    let made = unsafe { libc::calloc(count, size_of::<Answer>()) }.cast::<Answer>();
    if made.is_null() {
        return PAM_CONV_ERR;
    }
    for index in 0..count {
        // SAFETY: Linux-PAM hands over an array of `count` pointers to questions.
        let style = unsafe { (**questions.add(index)).style };
        let text = match style {
            PAM_PROMPT_ECHO_OFF => &credentials.password,
            PAM_PROMPT_ECHO_ON => &credentials.user,
            _ => continue,
        };
        // SAFETY: `made` has `count` answers, and the text is a string of C. If it is null for want
        // of memory the module has no answer and refuses.
        unsafe { (*made.add(index)).text = libc::strdup(text.as_ptr()) };
    }
    // SAFETY: libpam gives a place for the answers.
    unsafe { *answers = made };
    PAM_SUCCESS
}

/// PAM_MAX_NUM_MSG
const QUESTIONS_MAX: usize = 32;
const PAM_SUCCESS: c_int = 0;
const PAM_CONV_ERR: c_int = 19;
const PAM_PROMPT_ECHO_OFF: c_int = 1;
const PAM_PROMPT_ECHO_ON: c_int = 2;
/// Modules say nothing to a user who is not at a terminal.
const PAM_SILENT: c_int = 0x8000;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The real libpam, its modules, and a program that is told user and password by one of them.
    #[test]
    fn pam_decides_with_user_and_password() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let code =
            "#!/bin/sh\n[ \"$PAM_USER\" = alice ] && [ \"$(tr -d '\\000')\" = 'sécret x' ]\n";
        fs::write(&program, code).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let asks = format!("pam_exec.so expose_authtok quiet {}", program.display());
        for (name, auth, account) in [
            ("permit", "pam_permit.so", "pam_permit.so"),
            ("deny", "pam_deny.so", "pam_permit.so"),
            ("barred", "pam_permit.so", "pam_deny.so"),
            ("asks", &asks, "pam_permit.so"),
        ] {
            let text = format!("auth required {auth}\naccount required {account}\n");
            fs::write(folder.path().join(name), text).unwrap();
        }
        let lua = Lua::new();
        let folder = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let module = table(&lua, Some(folder.clone())).unwrap();
        lua.globals().raw_set("pam_auth", module).unwrap();
        let code = r#"
            for _, case in ipairs({
              {"permit", "alice", "x", true}, {"deny", "alice", "x", false},
              {"barred", "alice", "x", false}, {"asks", "alice", "sécret x", true},
              {"asks", "alice", "wrong", false}, {"asks", "bob", "sécret x", false},
              {"absent", "alice", "x", false},
            }) do
              local service, user, password, wanted = unpack(case)
              local found, more = pam_auth:login(service, user, password)
              assert(found == wanted and more == nil, service .. " " .. user .. " " .. password)
            end"#;
        lua.load(code).exec().unwrap();
    }

    #[test]
    fn a_missing_library_is_one_sentence() {
        let problem = Library::load(c"libpam-of-nobody.so.0").err().unwrap();
        assert!(problem.contains("needs libpam-of-nobody.so.0"), "{problem}");
        assert!(problem.contains("libpam0g"), "{problem}");
    }
}
