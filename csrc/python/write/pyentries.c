/*
 * pyentries.c - checks that dicts are laid out as pyentries.h expects.
 */
#include "python/write/pyentries.h"

bool shmc_entries_known;

#ifdef SHMC_KNOWN_DICTS

#define SAMPLE 300 /* entries: an index of two bytes, and hundreds of slots */

/* Some keys, one of them removed again, then one more; all str, or the first one an int. */
static PyObject *sample(bool str_keys)
{
    PyObject *dict = PyDict_New();

    for (int i = 0; dict != NULL && i <= SAMPLE; i++) {
        PyObject *key = i > 0 || str_keys ? PyUnicode_FromFormat("key %d", i) : PyLong_FromLong(i);
        PyObject *value = PyLong_FromLong(i);
        const bool set = key != NULL && value != NULL && PyDict_SetItem(dict, key, value) == 0;
        Py_XDECREF(key);
        Py_XDECREF(value);
        if (!set || (i == SAMPLE - 1 && PyDict_DelItemString(dict, "key 7") < 0))
            Py_CLEAR(dict);
    }
    return dict;
}

/* Follows only pointers that PyDict_Next returned, or after checking a number. */
static bool alike(PyObject *dict, bool str_keys)
{
    const struct shmc_dict_keys *const keys = (const void *)((PyDictObject *)dict)->ma_keys;
    Py_ssize_t theirs = 0, ours = 0;
    PyObject *key, *value, *my_key, *my_value;

    if (((PyDictObject *)dict)->ma_values != NULL || keys->kind != str_keys ||
        keys->entry_count != SAMPLE + 1 || keys->log2_size != 9 || keys->log2_index_bytes != 10)
        return false;
    while (PyDict_Next(dict, &theirs, &key, &value)) {
        if (!shmc_entries_next(dict, &ours, &my_key, &my_value) || my_key != key ||
            my_value != value || ours != theirs)
            return false;
    }
    return !shmc_entries_next(dict, &ours, &my_key, &my_value);
}

int shmc_entries_ready(void)
{
    bool known = true;

    shmc_entries_known = true; /* for the walks that are compared */
    for (int str_keys = 0; known && str_keys <= 1; str_keys++) {
        PyObject *dict = sample(str_keys);

        if (dict == NULL)
            return -1;
        known = alike(dict, str_keys);
        Py_DECREF(dict);
    }
    shmc_entries_known = known;
    return 0;
}

#else

int shmc_entries_ready(void)
{
    return 0;
}

#endif
