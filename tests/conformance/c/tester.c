/* The interpreter of scripts for C and C++. tests/conformance/README.md says what a line means; generated dispatchers
 * make the calls. Memory that scripts make is kept until the end. */
#include "tester.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 256 };
typedef struct named {
  char name[48];
  void* handle;
  span bytes;
  long count;
} named;

static named variables[MOST], buffers[MOST], counters[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of buffers and counters, which callbacks change */
static int line_number;

static void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("\nline %d: ", line_number);
  vprintf(format, arguments);
  printf("\n");
  va_end(arguments);
  exit(2);
}

static named* find(named* table, const char* name, int make) {
  for (int i = 0; i < MOST; ++i) {
    if (table[i].name[0] == 0 && make) snprintf(table[i].name, sizeof(table[i].name), "%s", name);
    if (strcmp(table[i].name, name) == 0) return &table[i];
    if (table[i].name[0] == 0) return NULL;
  }
  fail("too many names");
  return NULL;
}

void* kept(size_t bytes) {
  void* memory = calloc(1, bytes + 1);
  if (memory == NULL) abort();
  return memory;
}

static span copy(const void* data, size_t size) {
  span made = {kept(size), size};
  if (size != 0) memcpy(made.data, data, size);
  return made;
}

/* --- Lines */

static const char* space(const char* at) {
  while (*at == ' ' || *at == '\n' || *at == '\t') ++at;
  return at;
}

static const char* parse(const char* at, value* to) {
  memset(to, 0, sizeof(*to));
  at = space(at);
  if (*at == '[' || *at == '{') {
    char end = *at == '[' ? ']' : '}';
    to->kind = *at == '[' ? 'l' : 's';
    to->items = (value*)kept(64 * sizeof(value));
    for (at = space(at + 1); *at != end; at = space(at)) {
      if (*at == 0 || to->count == 64) fail("a list without an end");
      at = parse(at, &to->items[to->count++]);
    }
    return at + 1;
  }
  to->text = (char*)kept(strlen(at));
  if (*at != '"') {
    to->kind = 'w';
    while (*at != 0 && strchr(" \n\t[]{}", *at) == NULL) to->text[to->size++] = *at++;
    return at;
  }
  to->kind = 't';
  for (++at; *at != '"'; ++at) {
    char c = *at;
    if (c == 0) fail("a text without an end");
    if (c == '\\') {
      c = *++at;
      if (c == 'n') c = '\n';
      if (c == 'x') {
        char digits[3] = {at[1], at[2], 0};
        c = (char)strtol(digits, NULL, 16);
        at += 2;
      }
    }
    to->text[to->size++] = c;
  }
  return at + 1;
}

static int is_null(const value* v) { return v->kind == 'w' && strcmp(v->text, "NULL") == 0; }

static const value* next(call* c) {
  if (c->next == c->count) fail("too few arguments");
  return &c->arguments[c->next++];
}

/* --- Values in */

static int64_t integer(const value* v) {
  for (const constant_info* k = constants; k->name != NULL; ++k) {
    if (strcmp(k->name, v->text) == 0) return k->value;
  }
  char* end;
  int64_t number = v->text[0] == '-' ? (int64_t)strtoll(v->text, &end, 10) : (int64_t)strtoull(v->text, &end, 10);
  if (v->kind != 'w' || *end != 0 || end == v->text) fail("%s is no number", v->text);
  return number;
}

static void* handle(const value* v) {
  if (is_null(v)) return NULL;
  named* found = v->kind == 'w' ? find(variables, v->text, 0) : NULL;
  if (found == NULL) fail("%s is no handle", v->text == NULL ? "a list" : v->text);
  return found->handle;
}

static span bytes(const value* v) {
  span none = {NULL, 0};
  if (is_null(v)) return none;
  if (v->kind == 't') return copy(v->text, v->size);
  if (v->kind != 'w') fail("a list is no memory");
  const char* colon = strchr(v->text, ':');
  if (colon == NULL) {
    pthread_mutex_lock(&lock);
    named* found = find(buffers, v->text, 0);
    span of = found == NULL ? none : found->bytes;
    pthread_mutex_unlock(&lock);
    if (found == NULL) fail("%s is no memory", v->text);
    return of;
  }
  if (strncmp(v->text, "zeros:", 6) == 0) {
    span zeros = {kept((size_t)atoll(colon + 1)), (size_t)atoll(colon + 1)};
    return zeros;
  }
  int floats = strncmp(v->text, "f32:", 4) == 0;
  if (!floats && strncmp(v->text, "i64:", 4) != 0) fail("%s is no memory", v->text);
  span made = {kept(strlen(v->text) * 8), 0};
  for (const char* at = colon + 1; *at != 0;) {
    char* end;
    if (floats) {
      float number = strtof(at, &end);
      memcpy((char*)made.data + made.size, &number, 4);
    } else {
      int64_t number = strtoll(at, &end, 10);
      memcpy((char*)made.data + made.size, &number, 8);
    }
    if (end == at) fail("%s has no number", v->text);
    made.size += floats ? 4 : 8;
    at = *end == ',' ? end + 1 : end;
  }
  return made;
}

static hook* hook_of(const value* v) {
  if (is_null(v)) return NULL;
  if (v->kind != 'w' || v->text[0] != '@') fail("%s is no callback", v->text);
  hook* made = (hook*)kept(sizeof(hook));
  sscanf(v->text, "@%15[^:]:%47s", made->kind, made->parameter);
  return made;
}

void* take_handle(call* c) { return handle(next(c)); }
int64_t take_integer(call* c) { return integer(next(c)); }
span take_bytes(call* c) { return bytes(next(c)); }
hook* take_hook(call* c) { return hook_of(next(c)); }

double take_number(call* c) {
  const value* v = next(c);
  char* end;
  double number = strtod(v->text, &end);
  if (v->kind != 'w' || *end != 0) fail("%s is no number", v->text);
  return number;
}

span take_handles(call* c) {
  const value* v = next(c);
  span made = {NULL, 0};
  if (is_null(v)) return made;
  made.data = kept((v->count + 1) * sizeof(void*));
  for (; made.size < v->count; ++made.size) ((void**)made.data)[made.size] = handle(&v->items[made.size]);
  return made;
}

span take_integers(call* c) {
  const value* v = next(c);
  span made = {NULL, 0};
  if (is_null(v)) return made;
  made.data = kept((v->count + 1) * sizeof(int64_t));
  for (; made.size < v->count; ++made.size) ((int64_t*)made.data)[made.size] = integer(&v->items[made.size]);
  return made;
}

static void fill(char* memory, const value* v, const struct_info* info) {
  uint64_t size = info->size;
  if (info->sized) memcpy(memory, &size, 8);
  if (v->kind != 's') fail("a struct is {name value ...}");
  for (size_t i = 0; i + 1 < v->count; i += 2) {
    const field_info* f = info->fields;
    while (f->name != NULL && strcmp(f->name, v->items[i].text) != 0) ++f;
    if (f->name == NULL) fail("no field %s", v->items[i].text);
    const value* of = &v->items[i + 1];
    char* at = memory + f->offset;
    size_t count = f->array == 0 ? 1 : of->count;
    for (size_t k = 0; k < count && strchr("iIu", f->kind) != NULL; ++k) {
      int64_t number = integer(f->array == 0 ? of : &of->items[k]);
      int32_t narrow = (int32_t)number;
      if (f->kind == 'i')
        memcpy(at + 4 * k, &narrow, 4);
      else
        memcpy(at + 8 * k, &number, 8);
    }
    if (f->kind == 'd') *(double*)at = strtod(of->text, NULL);
    if (f->kind == 'h') *(void**)at = handle(of);
    if (f->kind == 't') {
      span text = bytes(of);
      *(void**)at = text.data;
      *(uint64_t*)(memory + f->length_offset) = text.size;
    }
    if (f->kind == 'g' && !is_null(of)) {
      *(hook**)at = hook_of(of);
      for (const callback_info* k = info->callbacks; k->group != NULL; ++k) {
        if (strcmp(k->group, f->name) == 0) memcpy(memory + k->offset, &k->function, sizeof(k->function));
      }
      void (*gone)(void*) = on_gone;
      if (f->length_offset != 0) memcpy(memory + f->length_offset, &gone, sizeof(gone));
    }
  }
}

void* take_struct(call* c, const struct_info* info) {
  const value* v = next(c);
  if (is_null(v)) return NULL;
  void* memory = kept(info->size);
  fill((char*)memory, v, info);
  return memory;
}

span take_structs(call* c, const struct_info* info) {
  const value* v = next(c);
  span made = {NULL, 0};
  if (is_null(v)) return made;
  made.data = kept((v->count + 1) * info->size);
  for (; made.size < v->count; ++made.size) fill((char*)made.data + made.size * info->size, &v->items[made.size], info);
  return made;
}

/* --- Values out */

static void print_text(const char* data, size_t size) {
  putchar('"');
  for (size_t i = 0; i < size; ++i) {
    unsigned char c = (unsigned char)data[i];
    if (c < 0x20 || c > 0x7e || c == '"' || c == '\\')
      printf("\\x%02x", c);
    else
      putchar(c);
  }
  putchar('"');
}

/* In units of 1/10000, so that no language's way to print numbers matters. */
static void print_number(double number) {
  if (isnan(number))
    printf("nan");
  else if (fabs(number) > 1e14)
    printf(number > 0 ? "large" : "-large");
  else
    printf("%llde-4", (long long)floor(number * 1e4 + 0.5));
}

static int hidden(const call* c, int some) {
  if (c->quiet) printf(some ? " some" : " none");
  return c->quiet;
}

size_t targets_left(const call* c) { return c->target_count - c->target; }

void give_handle(call* c, const void* given) {
  if (c->target == c->target_count) fail("a handle needs a name behind ->");
  const char* name = c->targets[c->target++].text;
  find(variables, name, 1)->handle = (void*)(uintptr_t)given;
  printf(given == NULL ? " NULL" : " %s", name);
}

void give_failure(call* c, int32_t code, span message, span where, int64_t rank, int retryable) {
  printf(" error %d %s", (int)code, epl_error_code_name(code));
  if (!c->quiet) {
    putchar(' ');
    print_text((const char*)message.data, message.size);
    putchar(' ');
    print_text((const char*)where.data, where.size);
    printf(" %lld %d", (long long)rank, retryable);
  }
  while (c->target < c->target_count) find(variables, c->targets[c->target++].text, 1)->handle = NULL;
}

int give_error(call* c, epl_error* error) {
  if (error == NULL) {
    printf(" ok");
    return 0;
  }
  span message, where;
  message.data = (void*)(uintptr_t)epl_error_message(error, &message.size);
  where.data = (void*)(uintptr_t)epl_error_where(error, &where.size);
  give_failure(c, epl_error_code(error), message, where, epl_error_rank(error), epl_error_retryable(error));
  epl_error_destroy(error);
  return 1;
}

void give_text(call* c, const char* data, size_t size) {
  if (hidden(c, size != 0)) return;
  putchar(' ');
  print_text(data, size);
}

void give_owned_text(call* c, epl_text* text) {
  size_t size = 0;
  const char* data = epl_text_data(text, &size);
  give_text(c, data, size);
  epl_text_destroy(text);
}

void give_integer(call* c, int64_t number) {
  if (!hidden(c, number != 0)) printf(" %lld", (long long)number);
}

void give_unsigned(call* c, uint64_t number) {
  if (!hidden(c, number != 0)) printf(" %llu", (unsigned long long)number);
}

void give_number(call* c, double number) {
  if (hidden(c, number != 0)) return;
  putchar(' ');
  print_number(number);
}

void give_struct(call* c, const void* memory, const struct_info* info) {
  if (hidden(c, 1)) return;
  printf(" {");
  const char* separator = "";
  for (const field_info* f = info->fields; f->name != NULL; ++f) {
    const char* at = (const char*)memory + f->offset;
    if (strchr("iIudt", f->kind) == NULL) continue;
    printf("%s%s=", separator, f->name);
    separator = " ";
    if (f->hidden) {
      putchar('*');
    } else if (f->kind == 't') {
      print_text(*(char* const*)at,
                 *(void* const*)at == NULL ? 0 : *(const uint64_t*)((const char*)memory + f->length_offset));
    } else if (f->kind == 'd') {
      print_number(*(const double*)at);
    } else if (f->kind == 'i') {
      printf("%d", (int)*(const int32_t*)at);
    } else if (f->kind == 'u') {
      printf("%llu", (unsigned long long)*(const uint64_t*)at);
    } else if (f->array == 0) {
      printf("%lld", (long long)*(const int64_t*)at);
    } else {
      size_t last = f->array;
      while (last > 0 && ((const int64_t*)at)[last - 1] == 0) --last;
      for (size_t i = 0; i < last; ++i) printf("%s%lld", i == 0 ? "[" : ",", (long long)((const int64_t*)at)[i]);
      printf(last == 0 ? "[]" : "]");
    }
  }
  putchar('}');
}

void give_memory(call* c, const void* data, const void* tensor) {
  const epl_tensor* of = (const epl_tensor*)tensor;
  if (hidden(c, data != NULL)) return;
  if (data == NULL) {
    printf(" NULL");
    return;
  }
  size_t size = epl_tensor_bytes(of);
  if (epl_tensor_dtype(of) == EPL_DTYPE_F32) {
    for (size_t i = 0; i < size / 4; ++i) {
      putchar(' ');
      print_number((double)((const float*)data)[i]);
    }
  } else {
    putchar(' ');
    for (size_t i = 0; i < size; ++i) printf("%02x", ((const unsigned char*)data)[i]);
  }
}

/* --- What callbacks need */

void count_call(const char* name) {
  pthread_mutex_lock(&lock);
  ++find(counters, name, 1)->count;
  pthread_mutex_unlock(&lock);
}

long await_count(const char* name, long wanted) {
  long have = 0;
  for (int i = 0; i < 10000; ++i) {
    struct timespec pause = {0, 1000000};
    pthread_mutex_lock(&lock);
    have = find(counters, name, 1)->count;
    pthread_mutex_unlock(&lock);
    if (have >= wanted) break;
    nanosleep(&pause, NULL);
  }
  return have;
}

void append(const char* name, const void* data, size_t size) {
  pthread_mutex_lock(&lock);
  span* to = &find(buffers, name, 1)->bytes;
  span all = {kept(to->size + size), to->size + size};
  if (to->size != 0) memcpy(all.data, to->data, to->size);
  if (size != 0) memcpy((char*)all.data + to->size, data, size);
  *to = all;
  pthread_mutex_unlock(&lock);
}

span buffer_of(const char* name) {
  span none = {NULL, 0};
  pthread_mutex_lock(&lock);
  named* found = find(buffers, name, 0);
  span of = found == NULL ? none : found->bytes;
  pthread_mutex_unlock(&lock);
  return of;
}

/* --- Commands */

static span file(const char* path) {
  FILE* f = fopen(path, "rb");
  if (f == NULL) fail("%s is no file", path);
  fseek(f, 0, SEEK_END);
  span made = {kept((size_t)ftell(f)), (size_t)ftell(f)};
  rewind(f);
  if (fread(made.data, 1, made.size, f) != made.size) fail("%s cannot be read", path);
  fclose(f);
  return made;
}

static int command(const char* name, const value* v, size_t given) {
  if (strcmp(name, "buffer") == 0 && given == 2) {
    span made = bytes(&v[1]);
    find(buffers, v[0].text, 1)->bytes = made;
  } else if (strcmp(name, "read") == 0 && given == 2) {
    span made = file(v[1].text);
    find(buffers, v[0].text, 1)->bytes = made;
  } else if (strcmp(name, "cut") == 0 && given == 2) {
    named* cut = find(buffers, v[0].text, 0);
    if (cut == NULL || cut->bytes.size < (size_t)integer(&v[1])) fail("nothing to cut");
    cut->bytes = copy(cut->bytes.data, (size_t)integer(&v[1]));
  } else if (strcmp(name, "write") == 0 && given == 2) {
    FILE* f = fopen(v[0].text, "wb");
    span made = bytes(&v[1]);
    if (f == NULL || fwrite(made.data, 1, made.size, f) != made.size || fclose(f) != 0) fail("%s", v[0].text);
  } else if (strcmp(name, "await") == 0 && given == 2) {
    printf("await: %s %ld\n", v[0].text, await_count(v[0].text, (long)integer(&v[1])));
    return 1;
  } else if (strcmp(name, "signal") == 0 && given == 1) {
    count_call(v[0].text);
  } else {
    return 0;
  }
  printf("%s: %s\n", name, v[0].text);
  return 1;
}

int main(int argument_count, char** arguments) {
  if (argument_count != 2) return 2;
  span script = file(arguments[1]);
  value line[64];
  for (char *at = (char*)script.data, *end; *at != 0; at = end) {
    end = at + strcspn(at, "\n");
    if (*end != 0) *end++ = 0;
    ++line_number;
    size_t words = 0, arrow = 0;
    const char* rest = space(at);
    if (*rest == '#') continue;
    for (; *rest != 0 && words < 64; rest = space(rest)) {
      rest = parse(rest, &line[words]);
      if (line[words].kind == 'w' && strcmp(line[words].text, "->") == 0) arrow = words;
      ++words;
    }
    if (words == 0) continue;
    size_t first = strcmp(line[0].text, "~") == 0;
    if (arrow == 0) arrow = words;
    const char* name = line[first].text;
    call c = {line + first + 1, arrow - first - 1, 0, line + arrow + 1, arrow == words ? 0 : words - arrow - 1, 0,
              (int)first};
    if (command(name, c.arguments, c.count)) continue;
    const function_info* f = functions;
    while (f->name != NULL && strcmp(f->name, name) != 0) ++f;
    if (f->name == NULL) fail("no function %s", name);
    printf("%s:", name);
    f->run(&c);
    if (c.next != c.count) fail("too many arguments");
    printf("\n");
    size_t length = strlen(name);
    if (length > 8 && strcmp(name + length - 8, "_destroy") == 0 && !is_null(&c.arguments[0])) {
      find(variables, c.arguments[0].text, 1)->handle = NULL;
    }
  }
  return 0;
}
