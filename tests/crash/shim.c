/* Comes between a program and its C library, counts the calls that change something, and at one of them ends the program or lets the call fail.

   shim_arm(n, mode, error): from now on calls count; at the n-th (from 1, 0: never)
     KILL     the program ends before the call;
     TORN     likewise, but half of what a write was to write is written;
     ONCE     the call fails with `error`;
     FOREVER  this call and all after it that can fail in that way do.
   shim_disarm() gives the number of calls. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { KILL, TORN, ONCE, FOREVER };
enum { SPACE = 1, NAMES = 2, OTHER = 4 }; /* needs room; needs a permission that an open file does not; neither */

#ifndef FICLONE
#define FICLONE 0x40049409
#endif

static int armed, mode, error;
static long count, at;

void shim_arm(long n, int how, int number) { count = 0; at = n; mode = how; error = number; armed = 1; }
long shim_disarm(void) { armed = 0; return count; }

static int fails(int kind)
{
    if (error == ENOSPC) return kind & SPACE;
    if (error == EACCES) return kind & NAMES;
    return 1;
}

/* 0: go on; 1: fail; 2: write half and end */
static int met(int kind)
{
    if (!armed) return 0;
    count++;
    if (!at || count < at) return 0;
    if (mode == TORN && count == at && (kind & SPACE)) return 2;
    if (mode == KILL || mode == TORN) { kill(getpid(), SIGKILL); pause(); }
    if (mode == ONCE ? count == at : fails(kind)) { errno = error; return 1; }
    return 0;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define END() do { kill(getpid(), SIGKILL); pause(); } while (0)
#define GUARD(kind) do { int m = met(kind); if (m == 1) return -1; if (m == 2) END(); } while (0)

#define OPEN(name, first, args)                                                    \
    {                                                                              \
        mode_t bits = 0;                                                           \
        if (flags & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); bits = va_arg(list, mode_t); va_end(list); } \
        REAL(name);                                                                \
        if (flags & (O_CREAT | O_TRUNC)) GUARD(SPACE | NAMES);                     \
        return real args;                                                          \
    }
int open(const char *path, int flags, ...) OPEN(open, path, (path, flags, bits))
int open64(const char *path, int flags, ...) OPEN(open64, path, (path, flags, bits))
int openat(int fd, const char *path, int flags, ...) OPEN(openat, fd, (fd, path, flags, bits))
int openat64(int fd, const char *path, int flags, ...) OPEN(openat64, fd, (fd, path, flags, bits))

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    if (fd > 2) {
        int m = met(SPACE);
        if (m == 1) return -1;
        if (m == 2) { real(fd, data, size / 2); END(); }
    }
    return real(fd, data, size);
}

#define WRAP(type, kind, name, parameters, arguments) \
    type name parameters { REAL(name); GUARD(kind); return real arguments; }

WRAP(ssize_t, SPACE, pwrite, (int fd, const void *d, size_t n, off_t o), (fd, d, n, o))
WRAP(ssize_t, SPACE, pwrite64, (int fd, const void *d, size_t n, off64_t o), (fd, d, n, o))
WRAP(ssize_t, SPACE, copy_file_range, (int a, off64_t *x, int b, off64_t *y, size_t n, unsigned f), (a, x, b, y, n, f))
WRAP(ssize_t, SPACE, sendfile, (int a, int b, off_t *o, size_t n), (a, b, o, n))
WRAP(ssize_t, SPACE, sendfile64, (int a, int b, off64_t *o, size_t n), (a, b, o, n))
WRAP(int, SPACE, posix_fallocate, (int fd, off_t a, off_t b), (fd, a, b))
WRAP(int, SPACE, posix_fallocate64, (int fd, off64_t a, off64_t b), (fd, a, b))
WRAP(int, SPACE, fallocate, (int fd, int m, off_t a, off_t b), (fd, m, a, b))
WRAP(int, OTHER, ftruncate, (int fd, off_t n), (fd, n))
WRAP(int, OTHER, ftruncate64, (int fd, off64_t n), (fd, n))
WRAP(int, NAMES, truncate, (const char *p, off_t n), (p, n))
WRAP(int, NAMES, truncate64, (const char *p, off64_t n), (p, n))
WRAP(int, SPACE | NAMES, rename, (const char *a, const char *b), (a, b))
WRAP(int, SPACE | NAMES, renameat, (int x, const char *a, int y, const char *b), (x, a, y, b))
WRAP(int, SPACE | NAMES, renameat2, (int x, const char *a, int y, const char *b, unsigned f), (x, a, y, b, f))
WRAP(int, SPACE | NAMES, link, (const char *a, const char *b), (a, b))
WRAP(int, SPACE | NAMES, linkat, (int x, const char *a, int y, const char *b, int f), (x, a, y, b, f))
WRAP(int, SPACE | NAMES, symlink, (const char *a, const char *b), (a, b))
WRAP(int, SPACE | NAMES, symlinkat, (const char *a, int x, const char *b), (a, x, b))
WRAP(int, NAMES, unlink, (const char *p), (p))
WRAP(int, NAMES, unlinkat, (int x, const char *p, int f), (x, p, f))
WRAP(int, SPACE | NAMES, mkdir, (const char *p, mode_t m), (p, m))
WRAP(int, SPACE | NAMES, mkdirat, (int x, const char *p, mode_t m), (x, p, m))
WRAP(int, NAMES, rmdir, (const char *p), (p))
WRAP(int, OTHER, fsync, (int fd), (fd))
WRAP(int, OTHER, fdatasync, (int fd), (fd))
WRAP(int, NAMES, utimensat, (int x, const char *p, const struct timespec *t, int f), (x, p, t, f))
WRAP(int, NAMES, futimens, (int fd, const struct timespec *t), (fd, t))
WRAP(int, NAMES, chown, (const char *p, uid_t u, gid_t g), (p, u, g))
WRAP(int, NAMES, lchown, (const char *p, uid_t u, gid_t g), (p, u, g))
WRAP(int, NAMES, fchown, (int fd, uid_t u, gid_t g), (fd, u, g))
WRAP(int, NAMES, fchownat, (int x, const char *p, uid_t u, gid_t g, int f), (x, p, u, g, f))
WRAP(int, NAMES, chmod, (const char *p, mode_t m), (p, m))
WRAP(int, NAMES, fchmod, (int fd, mode_t m), (fd, m))
WRAP(int, NAMES, fchmodat, (int x, const char *p, mode_t m, int f), (x, p, m, f))
WRAP(int, SPACE | NAMES, setxattr, (const char *p, const char *n, const void *v, size_t s, int f), (p, n, v, s, f))
WRAP(int, SPACE | NAMES, lsetxattr, (const char *p, const char *n, const void *v, size_t s, int f), (p, n, v, s, f))
WRAP(int, SPACE | NAMES, fsetxattr, (int fd, const char *n, const void *v, size_t s, int f), (fd, n, v, s, f))

int ioctl(int fd, unsigned long request, ...)
{
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    REAL(ioctl);
    if (request == FICLONE) GUARD(SPACE);
    return real(fd, request, argument);
}
