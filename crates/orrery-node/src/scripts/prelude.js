// Runs before any user-defined function. The engine asks whether it may go on while it executes JavaScript, but not within
// built-in methods that loop by themselves. Those get a bound here, so that none of them outlives a function's time.
(function () {
    "use strict";
    const LENGTH_MAX = 1e6;
    const SEARCH_MAX = 1e9;
    const { apply, getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
    const { defineProperty } = Object;
    const { isArray } = Array;

    function refuse() {
        throw new RangeError("the work exceeds what a user-defined function may do in one call of a built-in method");
    }

    // A length that is computed could change between this look and the method's own.
    function checkLength(list) {
        if (!isArray(list) && typeof list === "object") {
            for (let at = list; at !== null; at = getPrototypeOf(at)) {
                const length = getOwnPropertyDescriptor(at, "length");
                if (length !== undefined) {
                    if (!("value" in length) || typeof length.value === "object") refuse();
                    break;
                }
            }
        }
        if (list.length > LENGTH_MAX) refuse();
    }

    function checkNested(list, depth) {
        for (let i = 0; i < list.length; i++) {
            if (isArray(list[i])) {
                checkLength(list[i]);
                if (depth > 1) checkNested(list[i], depth - 1);
            }
        }
    }

    function checkArray(self, given, name) {
        if (self === null || self === undefined) return;
        checkLength(self);
        if (name === "concat") given.forEach((one) => isArray(one) && checkLength(one));
        if (name === "flat") checkNested(self, given[0] === undefined ? 1 : given[0]);
    }

    function checkString(self, given) {
        const [wanted] = given;
        if (typeof wanted === "string" && String(self).length * wanted.length > SEARCH_MAX) refuse();
    }

    function guard(prototype, name, check) {
        const property = getOwnPropertyDescriptor(prototype, name);
        if (property === undefined || typeof property.value !== "function" || name === "constructor") return;
        const original = property.value;
        const guarded = {
            [name](...given) {
                check(this, given, name);
                return apply(original, this, given);
            },
        }[name];
        defineProperty(prototype, name, { ...property, value: guarded });
    }

    const forEach = Array.prototype.forEach;
    ownKeys(Array.prototype).forEach((name) => guard(Array.prototype, name, checkArray));
    apply(forEach, ["includes", "indexOf", "lastIndexOf", "replace", "replaceAll", "split"], [
        (name) => guard(String.prototype, name, checkString),
    ]);
})();
